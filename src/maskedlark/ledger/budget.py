"""The lifetime budget of a source, and what is left of it. Pure: ledgers and auditors run the same code.

A source makes one report to aggregate and one for each of its models, all under one document, and each report
is in one dataset. Helpers cannot tell which reports are of one source. So a source has cost at most the sum,
over its *streams* (aggregation, and every model), of the stream's most expensive dataset.

There are two figures: against the ad server alone, and against anyone who knows the batches. Only training
sessions make them differ. In a dataset, single releases compose, and each session's charge
adds its own ε and δ, even if sessions are concurrent or opened by what was seen before. Where sessions can be
opened, half of a model's δ is for them, and a session that states none takes a part of it, so that several
find room. Whoever asks divides the ε by what was seen: single Gaussian
releases have their closed form only where nothing else draws on it (`Account.mixed`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.calibration import noise_for_session
from maskedlark.dp.mechanisms import Kind
from maskedlark.dp.session_charge import (
    ClosedSessionCharge,
    SessionCharge,
    adserver_epsilon,
    coalition_epsilon,
)
from maskedlark.errors import NotDeclared, ReleaseRefused
from maskedlark.ledger.errors import BudgetExhausted, DeltaExhausted
from maskedlark.ledger.wording import both
from maskedlark.parameters.document import Document

Stream = str | None
"""The tag of a model; None for the report to aggregate."""
SESSIONS = 8
"""A session that states no δ takes this part of what sessions of a model share: there is room for as many."""


class Spent(NamedTuple):
    """The most that one source may have cost: ε, and the δ at which it was computed."""

    epsilon: float
    """Against the ad server alone."""
    delta: float
    coalition: float
    """The ε for known batches: against the ad server with all helpers but one, or a curious helper."""


class EpsilonPair(NamedTuple):
    """An ε against the ad server alone, and one against an adversary who knows the batches."""

    adserver: float
    coalition: float

    def __str__(self) -> str:
        return both(*self)


class Limit(NamedTuple):
    """One of a document's ceilings, and how much of it a source may have cost."""

    of: str
    """What it limits, in words."""
    against: Literal["adserver", "coalition"]
    epsilon: float
    spent: float

    @property
    def left(self) -> float:
        """Below 0 if more was spent."""
        return self.epsilon - self.spent

    def __str__(self) -> str:
        return f"{self.left:.4g} of {self.epsilon:g} is left of {self.of}"


BUDGET = "a source's budget"
TRAINING = "what training may cost against the ad server"
TRAINING_COALITION = "what training may cost against the ad server with all helpers but one"


class Cost(NamedTuple):
    """What a release changes: spent before and after it, and what would be left."""

    before: Spent
    after: Spent
    left: float
    """Of a source's budget."""
    limits: tuple[Limit, ...] = ()
    """All ceilings, after it."""

    @property
    def charged(self) -> EpsilonPair:
        """By how much a source costs more."""
        return EpsilonPair(
            max(0.0, self.after.epsilon - self.before.epsilon),
            max(0.0, self.after.coalition - self.before.coalition),
        )


class StreamSpent(NamedTuple):
    """What was spent of one stream: the ε of its most expensive dataset, and the δ of its sessions."""

    stream: Stream
    spent: EpsilonPair
    single_delta: float
    """The δ at which single releases are accounted."""
    session_delta: float
    """The δ that all sessions over one dataset share …"""
    session_delta_left: float
    """… and what is left of it, in the dataset where the least is."""


@dataclass(frozen=True)
class BudgetEntry:
    """A release or a session's charge: over these datasets, of this stream."""

    stream: Stream
    datasets: tuple[bytes, ...]
    charge: Charge | SessionCharge
    session: bytes = b""
    """The session's id, by which it is closed."""


@dataclass(frozen=True)
class SessionRefund:
    """A session was closed: it counts as this charge from now on."""

    session: bytes
    session_charge: ClosedSessionCharge


class _Place(NamedTuple):
    """One stream's part of a dataset."""

    stream: Stream
    dataset: bytes


@dataclass(frozen=True)
class _Charged:
    """What a dataset was charged: for single releases, and for sessions."""

    charges: tuple[Charge, ...] = ()
    sessions: Mapping[bytes, SessionCharge | ClosedSessionCharge] = field(default_factory=dict)

    def with_(self, entry: BudgetEntry) -> "_Charged":
        if isinstance(entry.charge, SessionCharge):
            return _Charged(self.charges, {**self.sessions, entry.session: entry.charge})
        return _Charged(_merged([*self.charges, entry.charge]), self.sessions)

    def closed(self, closing: SessionRefund) -> "_Charged":
        return _Charged(self.charges, {**self.sessions, closing.session: closing.session_charge})

    @property
    def delta(self) -> float:
        """The δ of its sessions."""
        return math.fsum(charge.delta for charge in self.sessions.values())


class Account:
    """All releases and sessions under one document of one origin. One thread at a time changes it."""

    def __init__(self, document: Document, slack: float = 0.0) -> None:
        """`slack`: the tolerance for another machine's rounding, when auditing a helper's figures."""
        self._document = document
        self._slack = slack
        self._charged: dict[_Place, _Charged] = {}
        self._figures: dict[_Place, EpsilonPair] = {}

    def copy(self) -> "Account":
        """A snapshot, for long computations."""
        copied = Account(self._document, self._slack)
        copied._charged, copied._figures = dict(self._charged), dict(self._figures)
        return copied

    def spent(self) -> Spent:
        """What a source has cost so far."""
        return self._total(self._costs())

    def cost(self, change: BudgetEntry | SessionRefund | None) -> Cost:
        """What a release, an opening or a closing would change, whether or not it fits."""
        after = self._total(self._costs(change))
        return Cost(self.spent(), after, self._document.budget.epsilon - after.epsilon, self.limits(change))

    def limits(self, change: BudgetEntry | SessionRefund | None = None) -> tuple[Limit, ...]:
        """Every ceiling, with what was spent of it, optionally with one more change."""
        streams, budget = _dearest_by_stream(self._costs(change)), self._document.budget.epsilon
        limits = [Limit(BUDGET, "adserver", budget, _sum(streams.values()).adserver)]
        if self._document.training is not None:
            spent, most = _sum(_of_models(streams)), self._document.training
            limits.append(Limit(TRAINING, "adserver", most.adserver.epsilon, spent.adserver))
            limits.append(Limit(TRAINING_COALITION, "coalition", most.coalition.epsilon, spent.coalition))
        return tuple(limits)

    def streams(self) -> list[StreamSpent]:
        """What was spent of every declared stream."""
        dearest = _dearest_by_stream(self._costs())
        named = [None] if self._document.values else []
        return [
            StreamSpent(
                stream,
                dearest.get(stream, _NOTHING),
                self.delta(stream),
                self.sessions_delta(stream),
                self._delta_left(stream, [place.dataset for place in self._charged]),
            )
            for stream in (*named, *self._document.declared_models)
        ]

    def fits(self, entry: BudgetEntry) -> bool:
        """Whether a release or session stays within the budget, and training within its ceilings."""
        more = 1 + self._slack
        within = all(each.spent <= each.epsilon * more for each in self.limits(entry))
        return within and self._delta_fits(entry)

    def refusal(self, entry: BudgetEntry) -> ReleaseRefused:
        """Why a release does not fit: its cost, what is left of what, and what would fit. Slow."""
        if not self._delta_fits(entry):
            left, charge = self._delta_left(entry.stream, entry.datasets), entry.charge
            return DeltaExhausted(left, charge.delta if isinstance(charge, SessionCharge) else 0.0)
        over = [each for each in self.limits(entry) if each.spent > each.epsilon]
        left, limit = min((self._left(entry.stream, entry.datasets, each), each) for each in over)
        wanted = self.cost(entry).charged
        return BudgetExhausted(
            left, wanted.adserver, self.noise_that_fits(entry), wanted.coalition, limit.of, limit.epsilon
        )

    def room(self, stream: Stream, datasets: Sequence[bytes]) -> EpsilonPair:
        """The most that one more release over these datasets may cost."""
        limits = [each for each in self.limits() if stream is not None or each.of == BUDGET]
        left = [(each.against, self._left(stream, datasets, each)) for each in limits]
        return EpsilonPair(
            min(room for against, room in left if against == "adserver"),
            min((room for against, room in left if against == "coalition"), default=math.inf),
        )

    def _left(self, stream: Stream, datasets: Iterable[bytes], limit: Limit) -> float:
        """What these datasets may still cost under one ceiling."""
        costs = self._costs()
        streams = _dearest_by_stream(costs)
        streams[stream] = _dearest(costs.get(_Place(stream, each), _NOTHING) for each in datasets)
        counted = streams.values() if limit.of == BUDGET else _of_models(streams)
        return max(0.0, limit.epsilon - float(getattr(_sum(counted), limit.against)))

    def add(self, changes: Iterable[BudgetEntry | SessionRefund]) -> None:
        """Count releases and sessions. The caller checks them: what was released counts in any case."""
        for change in changes:
            for place, charged in self._changed(change).items():
                self._charged[place] = charged
                self._figures.pop(place, None)

    def noise_that_fits(self, entry: BudgetEntry) -> float | None:
        """The least noise with which the same query would fit; None if none does."""
        room, noises = self.room(entry.stream, ()), []
        for dataset in entry.datasets:
            charged = self._charged.get(_Place(entry.stream, dataset), _Charged())
            try:
                noises.append(self._noise(entry, charged, room))
            except NotDeclared:
                return None
        return max(noises)

    def _noise(self, entry: BudgetEntry, charged: _Charged, room: EpsilonPair) -> float:
        charge = entry.charge
        if isinstance(charge, SessionCharge):
            spent = self._figure(entry.stream, charged)
            left = EpsilonPair(room.adserver - spent.adserver, room.coalition - spent.coalition)
            return noise_for_session(
                charge.mechanism, charge.rate, charge.steps, charge.delta, *left, batches=charge.batches
            )
        sessions = self._sessions(charged)
        left_epsilon = min(room.adserver - sessions.adserver, room.coalition - sessions.coalition)
        delta = self.delta(entry.stream)
        asked = charge.mechanism, charge.columns, left_epsilon, delta, charged.charges
        return accountant.noise_for(*asked, mixed=self.mixed)

    @property
    def mixed(self) -> bool:
        """Whether anything but single Gaussian releases draws on the budget, in this stream or another."""
        kinds = {each.kind for each in self._document.mechanisms.values()}
        return self._document.has_sessions or len(kinds) > 1

    def delta(self, stream: Stream) -> float:
        """The δ at which the ε of a stream's single releases is computed: what sessions leave."""
        return self._delta(stream) - self.sessions_delta(stream)

    def sessions_delta(self, stream: Stream) -> float:
        """The δ that all sessions of a stream share in one dataset: half of a model's where there are any."""
        return self._delta(stream) / 2 if stream is not None and self._document.has_sessions else 0.0

    def default_session_delta(self, tag: str) -> float:
        """The δ of a session that states none."""
        return self.sessions_delta(tag) / SESSIONS

    def _delta(self, stream: Stream) -> float:
        """A stream's whole δ: the models share training's evenly.

        An undeclared stream has none: a made-up model would add to the sum of δ.
        """
        if stream is None:
            return self._document.delta(Purpose.AGGREGATE)
        if stream not in self._document.declared_models:
            raise NotDeclared(f"the document declares no model {stream!r}")
        return self._document.delta(Purpose.TRAIN) / len(self._document.models)

    def _delta_left(self, stream: Stream, datasets: Iterable[bytes]) -> float:
        taken = (self._charged.get(_Place(stream, each), _Charged()).delta for each in datasets)
        shared = self.sessions_delta(stream)
        left = shared - max(taken, default=0.0)
        return left if left > _ROUNDING * shared else 0.0  # A rounding error is nothing to advise.

    def _delta_fits(self, entry: BudgetEntry) -> bool:
        if not isinstance(entry.charge, SessionCharge):
            return True
        # A session may ask for exactly what is left, found by subtraction, and be over by a rounding error.
        left = self._delta_left(entry.stream, entry.datasets)
        return entry.charge.delta <= left + _ROUNDING * self.sessions_delta(entry.stream)

    def _changed(self, change: BudgetEntry | SessionRefund) -> dict[_Place, _Charged]:
        """The datasets that a change concerns, as they are after it."""
        if isinstance(change, SessionRefund):
            concerned = {p: c for p, c in self._charged.items() if change.session in c.sessions}
            return {place: charged.closed(change) for place, charged in concerned.items()}
        places = [_Place(change.stream, dataset) for dataset in change.datasets]
        return {place: self._charged.get(place, _Charged()).with_(change) for place in places}

    def _costs(self, change: BudgetEntry | SessionRefund | None = None) -> dict[_Place, EpsilonPair]:
        """What every dataset has cost, optionally with one more change."""
        for place in self._charged.keys() - self._figures.keys():
            self._figures[place] = self._figure(place.stream, self._charged[place])
        costs = dict(self._figures)
        if change is not None:
            for place, charged in self._changed(change).items():
                costs[place] = self._figure(place.stream, charged)
        return costs

    def _figure(self, stream: Stream, charged: _Charged) -> EpsilonPair:
        sessions = self._sessions(charged)
        single = accountant.epsilon(charged.charges, self.delta(stream), mixed=self.mixed)
        return EpsilonPair(single + sessions.adserver, single + sessions.coalition)

    @staticmethod
    def _sessions(charged: _Charged) -> EpsilonPair:
        return _sum(EpsilonPair(adserver_epsilon(c), coalition_epsilon(c)) for c in charged.sessions.values())

    def _total(self, costs: Mapping[_Place, EpsilonPair]) -> Spent:
        streams = _dearest_by_stream(costs)
        total = _sum(streams.values())
        delta = math.fsum(self._delta(stream) for stream in streams)
        return Spent(total.adserver, delta, total.coalition)


_NOTHING = EpsilonPair(0.0, 0.0)
_ROUNDING = 1e-12


def _sum(figures: Iterable[EpsilonPair]) -> EpsilonPair:
    """Rounded once: every helper finds the same, in any order."""
    all_ = list(figures)
    return EpsilonPair(math.fsum(each.adserver for each in all_), math.fsum(each.coalition for each in all_))


def _dearest(figures: Iterable[EpsilonPair]) -> EpsilonPair:
    """The larger of each figure, possibly of different datasets."""
    all_ = [_NOTHING, *figures]
    return EpsilonPair(max(each.adserver for each in all_), max(each.coalition for each in all_))


def _dearest_by_stream(costs: Mapping[_Place, EpsilonPair]) -> dict[Stream, EpsilonPair]:
    dearest: dict[Stream, EpsilonPair] = {}
    for place, figures in costs.items():
        dearest[place.stream] = _dearest([figures, dearest.get(place.stream, _NOTHING)])
    return dearest


def _of_models(streams: Mapping[Stream, EpsilonPair]) -> list[EpsilonPair]:
    return [figures for stream, figures in streams.items() if stream is not None]


def _merged(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The fewest equivalent charges: a thousand queries with the same noise become one."""
    counts: Counter[tuple[Kind, float]] = Counter()
    for charge in charges:
        counts[charge.mechanism, charge.noise] += charge.columns
    return tuple(Charge(kind, noise, count) for (kind, noise), count in counts.items())
