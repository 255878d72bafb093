"""Candidate labels: what a helper sees instead of the true label (section 4.1.1). Run by the browser.

`All` shows the whole label space in fixed order and so depends on nothing. `Pair` is the paper's true and
fake label, and `Sample` its generalisation; both show the truth among few, so anyone who knows the labels'
distribution can guess better than chance. `docs/ACCOUNTING.md` states by how much.

Masks are the one-hot truth among a record's candidates, or all zero for a fake one (section 4.1.2). After
sharing, a true label's masks add up to 1 over the helpers and a fake label's to 0, and any N-1 helpers' masks
are uniform in the field.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness


class CandidatePolicy(ABC):
    """How candidates are drawn for a label space."""

    @abstractmethod
    def count(self, space: LabelSpace) -> int:
        """How many candidates a record shows: the same for every record."""

    @abstractmethod
    def show(self, space: LabelSpace, labels: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """The candidates of every record, the true label among them: (n, m)."""

    def allows(self, space: LabelSpace, shown: tuple[int, ...]) -> bool:
        """Whether a record may show these, all different. Run by helpers."""
        known = len(shown) == self.count(space) and 0 in shown and space.members.issuperset(shown)
        return known and len(set(shown)) == len(shown)

    def draw(
        self, space: LabelSpace, labels: NDArray[np.int64], real: NDArray[np.bool_], rng: Randomness
    ) -> tuple[NDArray[np.int64], FieldArray]:
        """Candidates, shown to every helper, and their secret masks: (n, m) each.

        A fake record shows what a record without conversion shows.
        """
        acted = np.where(real, labels, 0)
        shown = self.show(space, acted, rng)
        matches = shown == acted[:, None]
        assert (matches.sum(axis=1) == 1).all(), "candidates differ, and labels were checked when quantised"
        return shown, (matches & real[:, None]).astype(np.int64)


@dataclass(frozen=True)
class All(CandidatePolicy):
    """The whole label space in fixed order: nothing to guess from. The default."""

    def count(self, space: LabelSpace) -> int:
        """All of it."""
        return len(space)

    def allows(self, space: LabelSpace, shown: tuple[int, ...]) -> bool:
        """Only the space in its order."""
        return shown == space.values

    def show(self, space: LabelSpace, labels: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:  # noqa: ARG002
        """The same row for every record."""
        return np.tile(np.array(space.values), (len(labels), 1))


ALL = All()


@dataclass(frozen=True)
class Pair(CandidatePolicy):
    """The paper's true and one fake label, exactly one of the two 0, in random order."""

    def count(self, space: LabelSpace) -> int:  # noqa: ARG002
        """Two."""
        return 2

    def show(self, space: LabelSpace, labels: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """0, and the conversion's label or a uniform one without conversion."""
        others = np.array([value for value in space.values if value != 0])
        fakes = others[rng.below(len(others), len(labels))]
        shown = np.stack([np.zeros_like(labels), np.where(labels == 0, fakes, labels)], axis=1)
        swap = rng.below(2, len(labels)) == 1
        return np.where(swap[:, None], shown[:, ::-1], shown)


@dataclass(frozen=True)
class Sample(CandidatePolicy):
    """The truth, 0, and uniform fakes up to m different labels, in random order."""

    m: int

    def __post_init__(self) -> None:
        if self.m < 2:
            raise NotDeclared(f"a sample shows at least 2 candidates, not {self.m}")

    def count(self, space: LabelSpace) -> int:
        """m, or the size of the space if that is smaller."""
        return min(self.m, len(space))

    def show(self, space: LabelSpace, labels: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """The m first of a random order in which truth and 0 come first, then shuffled."""
        values, records = np.array(space.values), len(labels)
        order = rng.below(1 << 62, records * len(values)).reshape(records, len(values))
        order[(values == 0) | (values == labels[:, None])] = -1
        first = np.argpartition(order, self.count(space) - 1, axis=1)[:, : self.count(space)]
        # A partition defines which are first, but not their order.
        chosen = np.sort(first, axis=1)
        shuffled = np.argsort(rng.below(1 << 62, chosen.size).reshape(chosen.shape), axis=1)
        return values[np.take_along_axis(chosen, shuffled, axis=1)]
