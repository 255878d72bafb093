import numpy as np
import pytest

from examples import own_function
from maskedlark.clock import SystemClock
from maskedlark.errors import BadArguments
from maskedlark.functions import Functions
from maskedlark.randomness import SystemRandomness
from maskedlark.workflow import Workflow


def test_helpers_load_it_and_answer_with_the_number_of_buyers_by_age():
    rng = np.random.default_rng(5)
    ages, bought = rng.integers(0, 100, 500, np.uint8), rng.integers(0, 2, 500)
    with Workflow.declared(own_function.SETTINGS, 3, SystemClock(), SystemRandomness()) as workflow:
        for helper in workflow.helpers:
            helper.start(Functions([own_function.__name__]))
        workflow.make_training_dataset("people", "purchase", ages[:, None], [bought])
        answered = workflow.ask(own_function.BuyersByAge(), {}, epsilon=1.0)
        with pytest.raises(BadArguments, match="takes no arguments"):
            workflow.ask(own_function.BuyersByAge(), {"tag": "purchase"})
    # Three helpers' Laplace noise of scale 2 or less: more than 100 has a probability below 1e-15.
    found = answered.tables[0].columns[0][0]
    assert np.abs(found - np.bincount(ages // 10, bought, 10)).max() < 100
