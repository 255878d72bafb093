"""The life budget of a source, and what is left of it. Pure: ledgers and those who audit them run the same.

A source makes one report to aggregate and one for each of its models, all under one document, and each report
is in one dataset. Helpers cannot tell which reports are of one source. So what a source has cost is at most
the sum, over its *streams* (aggregate, and every model), of the dearest dataset of the stream.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.privacy import accountant
from maskedlark.privacy.accountant import Charge
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BudgetExhausted
from maskedlark.privacy.mechanisms import Kind

Stream = str | None
"""The tag of a model; None stands for the one report to aggregate."""
_Place = tuple[Stream, bytes]
"""A dataset, as far as one stream is in it."""


class Spent(NamedTuple):
    """What one source may have cost, at most: ε, and the δ at which that ε was computed."""

    epsilon: float
    delta: float


class Cost(NamedTuple):
    """What a release changes: spent before it and with it, and what would be left then."""

    before: Spent
    after: Spent
    left: float


@dataclass(frozen=True)
class Entry:
    """A release, as the budget sees it: over these datasets, of this stream."""

    stream: Stream
    datasets: tuple[bytes, ...]
    charge: Charge


class Account:
    """All releases under one document of one origin. One thread at a time changes it."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._charges: dict[_Place, tuple[Charge, ...]] = {}
        self._epsilons: dict[_Place, float] = {}

    def copy(self) -> "Account":
        """As it is now, for somebody who takes time to look at it."""
        copied = Account(self._document)
        copied._charges, copied._epsilons = dict(self._charges), dict(self._epsilons)
        return copied

    def spent(self) -> Spent:
        """What a source has cost until now."""
        return self._total(self._costs())

    def cost(self, entry: Entry) -> Cost:
        """What a release would cost, whether it fits or not."""
        after = self._total(self._costs(entry))
        return Cost(self.spent(), after, self._document.budget.epsilon - after.epsilon)

    def fits(self, entry: Entry) -> bool:
        """Whether a release stays within the budget, and training within its ceilings."""
        streams = _dearest_by_stream(self._costs(entry))
        training = sum(epsilon for stream, epsilon in streams.items() if stream is not None)
        return sum(streams.values()) <= self._document.budget.epsilon and training <= self._ceiling()

    def refusal(self, entry: Entry) -> BudgetExhausted:
        """Why a release does not fit: what it would cost, what is left, and what would fit. Takes time."""
        costs = self._costs()
        dearest = max(costs.get((entry.stream, dataset), 0.0) for dataset in entry.datasets)
        left = max(0.0, self._room(entry.stream) - dearest)
        wanted = self.cost(entry).after.epsilon - self.spent().epsilon
        return BudgetExhausted(left, wanted, self.noise_that_fits(entry))

    def add(self, entries: Iterable[Entry]) -> None:
        """Count releases. Their check is the caller's: what was released is counted, whatever it cost."""
        for entry in entries:
            for dataset in entry.datasets:
                place = entry.stream, dataset
                self._charges[place] = _merged([*self._charges.get(place, ()), entry.charge])
                self._epsilons.pop(place, None)

    def noise_that_fits(self, entry: Entry) -> float | None:
        """The least noise with which the same question would fit; none if nothing does."""
        room, delta, charge = self._room(entry.stream), self.delta(entry.stream), entry.charge
        found = []
        for dataset in entry.datasets:
            before = self._charges.get((entry.stream, dataset), ())
            try:
                found.append(accountant.noise_for(charge.kind, charge.count, room, delta, before))
            except NotDeclared:
                return None
        return max(found)

    def delta(self, stream: Stream) -> float:
        """The δ that a stream's ε is computed at: training's is shared evenly by the models.

        A stream that the document does not declare has none: a made-up model would add to what δ sums up to.
        """
        if stream is None:
            return self._document.delta(Purpose.AGGREGATE)
        if stream not in self._document.declared_models:
            raise NotDeclared(f"the document declares no model {stream!r}")
        return self._document.delta(Purpose.TRAIN) / len(self._document.models)

    def _costs(self, entry: Entry | None = None) -> dict[_Place, float]:
        """What every dataset has cost, with one more release or without."""
        for place in self._charges.keys() - self._epsilons.keys():
            self._epsilons[place] = self._epsilon(place[0], self._charges[place])
        costs = dict(self._epsilons)
        if entry is not None:
            for dataset in entry.datasets:
                charges = [*self._charges.get((entry.stream, dataset), ()), entry.charge]
                costs[entry.stream, dataset] = self._epsilon(entry.stream, charges)
        return costs

    def _epsilon(self, stream: Stream, charges: Sequence[Charge]) -> float:
        return accountant.epsilon(charges, self.delta(stream))

    def _total(self, costs: Mapping[_Place, float]) -> Spent:
        streams = _dearest_by_stream(costs)
        return Spent(sum(streams.values()), sum(self.delta(stream) for stream in streams))

    def _room(self, stream: Stream) -> float:
        """The most that one dataset of a stream may cost, beside what the other streams have cost."""
        others = {name: cost for name, cost in _dearest_by_stream(self._costs()).items() if name != stream}
        room = self._document.budget.epsilon - sum(others.values())
        if stream is None:
            return room
        training = sum(cost for name, cost in others.items() if name is not None)
        return min(room, self._ceiling() - training)

    def _ceiling(self) -> float:
        """Training's ceiling. Without sampling the two adversaries learn the same: the lower one counts."""
        training = self._document.training
        return min(training.adserver.epsilon, training.coalition.epsilon) if training else 0.0


def _dearest_by_stream(costs: Mapping[_Place, float]) -> dict[Stream, float]:
    dearest: dict[Stream, float] = {}
    for (stream, _), epsilon in costs.items():
        dearest[stream] = max(epsilon, dearest.get(stream, 0.0))
    return dearest


def _merged(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """As few charges as say the same: a thousand questions with one noise are one charge."""
    counts: Counter[tuple[Kind, float]] = Counter()
    for charge in charges:
        counts[charge.kind, charge.noise] += charge.count
    return tuple(Charge(kind, noise, count) for (kind, noise), count in counts.items())
