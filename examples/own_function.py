"""A function of your own, here buyers by age: python examples/own_function.py

Helpers of a deployment load such a file by `functions = ["own_function"]` in `helper.toml`.
"""

import numpy as np

from maskedlark.clock import SystemClock
from maskedlark.core.lemma import masked_sum
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Arguments, Column, Function, Partial, Query, Table, TableSchema
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.workflow import Workflow

SETTINGS = """
k = 100
mechanisms.buyers_by_age = {kind = "laplace", noise_floor = 1.0}
models.purchase.columns = [{kind = "bytes", count = 1}]  # The age, which helpers see.
"""


class BuyersByAge(Function):
    """The function, by the name that documents and queries use."""

    name, purpose = "buyers_by_age", Purpose.TRAIN

    def ask(self, document: Document, arguments: Arguments) -> Query:  # noqa: ARG002
        """The query. It has no arguments."""
        if arguments:
            raise BadArguments("buyers_by_age takes no arguments: leave them out")
        return Buyers()


class Buyers(Query):
    """A table of one row of ten numbers, by decade of age. Another label changes one number by 1."""

    tag = "purchase"
    schemas = (TableSchema((), (Column("buyers", Sensitivity(1, 1.0), largest=1, width=10),)),)

    def over(self, records: Records, device: str = "cpu") -> Partial:  # noqa: ARG002
        """A helper's share of the sum of f(age, bought), without knowing who bought."""
        assert isinstance(records, TrainingRecords)
        share = masked_sum(lambda age, bought: (age // 10 == np.arange(10)) * bought[:, None], records)
        return [Table([()], np.array([len(records)]), (share[None, :],))]


if __name__ == "__main__":
    rng = np.random.default_rng()
    ages, bought = rng.integers(18, 90, 3000, np.uint8), rng.integers(0, 2, 3000)
    with Workflow.declared(SETTINGS, 2, SystemClock(), SystemRandomness()) as workflow:
        for helper in workflow.helpers:
            helper.start({BuyersByAge.name: BuyersByAge()})
        workflow.make_training_dataset("november", "purchase", ages[:, None], [bought])
        answered = workflow.ask(BuyersByAge(), {}, epsilon=1.0)
    print("from age on:     ", np.arange(0, 100, 10))
    print("bought, private: ", answered.tables[0].columns[0][0])
    print("bought, in truth:", np.bincount(ages // 10, bought, 10).astype(int))
