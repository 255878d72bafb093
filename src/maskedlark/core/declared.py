"""What an ad server declares in public before any report is made: its models and its values.

Browsers make reports by it, helpers check reports against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core import field, masks
from maskedlark.core.candidates import ALL, CandidatePolicy
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace, check_rows, integers
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness


@dataclass(frozen=True)
class Model:
    """A model to train: its tag, the number of byte features, its label spaces, how candidates are shown."""

    tag: str
    features: int
    labels: tuple[LabelSpace, ...] = (LabelSpace.binary(),)
    policy: CandidatePolicy = ALL

    def secrets(self) -> int:
        """How many masks a record has."""
        return sum(self.policy.count(space) for space in self.labels)

    def mask(
        self, labels: Sequence[ArrayLike], real: NDArray[np.bool_], rng: Randomness
    ) -> tuple[list[NDArray[np.int64]], FieldArray]:
        """What users did, one column a label, as shown candidates and the secret one-hot. The browser."""
        if len(labels) != len(self.labels):
            raise NotDeclared(f"model {self.tag} declares {len(self.labels)} labels, not {len(labels)}")
        check_rows(labels, len(real), "label")
        drawn = [
            self.policy.draw(space, space.quantise(column, rng), real, rng)
            for space, column in zip(self.labels, labels, strict=True)
        ]
        return [candidates.labels for candidates in drawn], masks.one_hot(drawn)


@dataclass(frozen=True)
class Value:
    """A conversion value: its name and the integers that it may take. 0 is always possible."""

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not -field.HALF <= self.low <= self.high <= field.HALF:
            raise NotDeclared(f"value {self.name} needs low <= high, both within (p - 1) / 2")

    def lift(self, values: ArrayLike, real: NDArray[np.bool_]) -> FieldArray:
        """Values as field elements, 0 for a fake record. Refuses what was not declared."""
        given = integers(values, "value")
        if given.size and not min(self.low, 0) <= given.min() <= given.max() <= max(self.high, 0):
            raise NotDeclared(f"a value of {self.name} is outside the declared {self.low} … {self.high}")
        return field.from_signed(np.where(real, given, 0))


@dataclass(frozen=True)
class Measure:
    """What is summed and by what: aggregation keys and conversion values (section 3.3)."""

    keys: tuple[str, ...]
    values: tuple[Value, ...]

    def secrets(self) -> int:
        """How many shared numbers a record has: the count (1 real, 0 fake), then every value."""
        return 1 + len(self.values)

    def lift(self, values: Sequence[ArrayLike], real: NDArray[np.bool_]) -> FieldArray:
        """The secret of every record, count first: (n, secrets). Run by the browser."""
        if len(values) != len(self.values):
            raise NotDeclared(f"{len(self.values)} values are declared, not {len(values)}")
        check_rows(values, len(real), "value")
        columns = [value.lift(column, real) for value, column in zip(self.values, values, strict=True)]
        return np.stack([real.astype(np.int64), *columns], axis=1)
