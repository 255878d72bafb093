"""The cost and noise of a training run, before any request. Run by the ad server."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.filesize import decimal

from maskedlark.adserver.query_arguments import check_cost, is_over_0
from maskedlark.adserver.spending import BudgetState
from maskedlark.core.batches import room
from maskedlark.dp import calibration, sampling
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import (
    SessionCharge,
    adserver_epsilon,
    batches_reach_k,
    coalition_epsilon,
)
from maskedlark.errors import BadArguments, NoiseTooSmall, NotDeclared
from maskedlark.functions.model import GRADIENT
from maskedlark.ledger.budget import TRAINING, TRAINING_COALITION, Account, BudgetEntry, EpsilonPair
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.ledger.wording import AT_FLOOR, USEFUL_EPSILON, at_most, both
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.release import checks
from maskedlark.release.errors import TooManyRecords
from maskedlark.training.errors import OverCeiling
from maskedlark.training.precision import Precision

_ROUNDED = 1e-9
_SUITS = 1.5
"""A bound so many times longer or shorter than gradients still suits them."""
_AGAINST = ("adserver", "coalition")
HOPELESS = (
    "Nothing will come of it: noise drowns all that could be learned. Take a larger ε, or more records."
)


@dataclass(frozen=True)
class PrivacyTarget:
    """What a run may cost, or its noise."""

    noise: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    against: str = "adserver"


@dataclass(frozen=True)
class TrainingPlan:
    """A run as it will be charged."""

    session_charge: SessionCharge | None
    """None if labels were randomised in the browser."""
    sampling: Sampling
    steps: int
    records: int
    """The model's records, including fakes."""
    bound: float
    """ψ: the bound on a record's gradient."""
    size: int
    """Number of parameters."""
    helpers: int
    bytes_per_step: int
    """Sent and received, all helpers together."""
    precision: Precision
    typical: float | None = None
    """How long the gradient of half of the ad server's rows can be; None if it gave none."""
    fixed: int = 0
    """How many of the parameters are not trained."""
    shards: int = 1
    """In how many shards a helper has the records."""
    stored_bytes: int = 0
    """What it has of them: a step reads the rows of its batch, of all shards."""
    is_at_floor: bool = False
    """Whether an ε was asked for that would allow no less noise than is declared."""
    recalibrates: bool = True
    """Whether its labels are all yes or no, so that what clipping does to probabilities can be set right."""

    @property
    def noise(self) -> float | None:
        """The noise multiplier, in units of 2 ψ."""
        return None if self.session_charge is None else self.session_charge.noise

    @property
    def epsilon(self) -> float:
        """The ε against the ad server alone."""
        return 0.0 if self.session_charge is None else adserver_epsilon(self.session_charge)

    @property
    def coalition_epsilon(self) -> float:
        """The ε against the ad server with all helpers but one, or a curious helper, who know the batches."""
        return 0.0 if self.session_charge is None else coalition_epsilon(self.session_charge)

    @property
    def batch(self) -> float:
        """The expected number of records in a step."""
        return expected_batch(self.sampling, self.records)

    @property
    def rows_per_step(self) -> int:
        """The rows that a helper computes over in a step: in shards of one size, each with its padding."""
        share = min(1.0, self.batch / self.records) if self.records else 1.0
        if self.sampling.kind in ("whole", "chosen"):
            return round(share * self.records)
        each = -(-self.records // self.shards)
        return min(self.records, self.shards * room(share, each))

    @property
    def deviation(self) -> float:
        """The standard deviation of all helpers' noise in one number of a step's mean gradient."""
        if self.session_charge is None:
            return 0.0
        scale = math.sqrt(2) if self.session_charge.mechanism == "laplace" else 1.0
        return scale * self.session_charge.noise * 2 * self.bound * math.sqrt(self.helpers) / self.batch

    @property
    def signal(self) -> float:
        """The largest norm of a step's mean gradient, divided by the norm of its noise."""
        return (
            math.inf
            if self.session_charge is None
            else self.bound / (self.deviation * math.sqrt(max(self.size - self.fixed, 1)))
        )

    @property
    def is_hopeless(self) -> bool:
        """Whether noise is longer than all steps' gradients could be together, were each as long as ψ."""
        return self.signal * math.sqrt(self.steps) < 1

    def figures(self) -> dict[str, Any]:
        """The plan's figures, for programs."""
        return {
            "steps": self.steps,
            "records": self.records,
            "batch": self.batch,
            "sampling": self.sampling.model_dump(),
            "noise": self.noise,
            "epsilon": self.epsilon,
            "coalition_epsilon": self.coalition_epsilon,
            "delta": 0.0 if self.session_charge is None else self.session_charge.delta,
            "deviation": self.deviation,
            "signal": None if self.session_charge is None else self.signal,
            "bound": self.bound,
            "typical_gradient": self.typical,
            **self.precision.figures(),
            "bytes_per_step": self.bytes_per_step,
            "shards": self.shards,
            "rows_per_step": self.rows_per_step,
            "stored_bytes": self.stored_bytes,
            "hopeless": self.is_hopeless,
        }

    def __str__(self) -> str:
        drawn = f"{self.steps} steps of {self.batch:.0f} of {self.records} records, {self._drawn()}"
        one, whole = decimal(self.bytes_per_step), decimal(self.steps * self.bytes_per_step)
        finely = self.precision.lines(1 / self.signal)
        lines = [drawn, *self._charged(), *self._bounded(), *finely, f"{one} per step, {whole} in all"]
        if self.shards > 1:
            has = decimal(self.stored_bytes)
            read = decimal(round(self.stored_bytes * self.rows_per_step / self.records))
            lines.append(
                f"each helper has {has} in {self.shards} shards, and reads about {read} of all of them in "
                f"every step: {self.rows_per_step} rows with those that hide the batch. With `storage` it "
                "reads whole shards, but for 512 MiB that each worker keeps"
            )
        if self.is_hopeless:
            lines.append(HOPELESS)
        return "\n".join(lines)

    def _bounded(self) -> list[str]:
        """How ψ suits the rows."""
        if self.typical is None:
            return []
        line = (
            f"ψ = {self.bound:g}; at these weights, half of the rows can have gradients of {self.typical:g}"
        )
        if self.bound < self.typical / _SUITS:
            remedy = f"declare gradient_bound = {self.typical:g}"
            if self.recalibrates:
                remedy = f"recalibrate (`maskedlark evaluate --recalibrate`), or {remedy}"
            line += f": many are cut, and what it predicts will be off; {remedy}"
        elif self.bound > self.typical * _SUITS:
            line += f": declare gradient_bound = {self.typical:g} for less noise"
        return [line]

    def _charged(self) -> list[str]:
        if self.session_charge is None:
            return ["labels were randomised in the browser: no noise is added, and nothing is charged"]
        return [
            f"ε = {both(self.epsilon, self.coalition_epsilon)}; δ = {self.session_charge.delta:.3g}"
            + (f"; {AT_FLOOR}" if self.is_at_floor else ""),
            f"noise {self.session_charge.noise:g} times the sensitivity at each of {self.helpers} helpers: "
            f"{self.deviation:.3g} on every number of a mean gradient, which is at most {self.bound:g} long; "
            f"signal to noise at most {self.signal:.3g} per step",
        ]

    def _drawn(self) -> str:
        match self.sampling.kind:
            case "poisson":
                return f"each drawn with probability {self.sampling.rate:g}"
            case "partition":
                return f"each once in {self.sampling.batches} steps"
            case "whole":
                return "all of them"
            case _:
                return "chosen by the caller, which hides nobody"


def drawn(
    rate: float | None = None, batches: int | None = None, kind: str | None = None, held_out: float = 0.0
) -> Sampling:
    """How batches are drawn: exactly one of these must be given."""
    given = sum(each is not None for each in (rate, batches, kind))
    refuse(
        (given != 1, "say how batches are made: sampling_rate, batches, or sampling='whole' or 'chosen'"),
        (kind not in (None, "whole", "chosen"), f"sampling={kind!r}: there are 'whole' and 'chosen'"),
        (
            rate is not None and not (is_over_0(rate) and rate <= 1),
            f"sampling_rate={rate}: a rate is over 0, and 1 at most",
        ),
        (batches is not None and batches < 1, f"batches={batches}: an epoch has 1 or more"),
        (not 0 <= held_out < 1, f"held_out={held_out:g}: a share is at least 0, and less than 1"),
    )
    made = kind or ("partition" if rate is None else "poisson")
    return Sampling(kind=made, rate=rate, batches=batches, held_out=held_out)  # type: ignore[arg-type]


def refuse(*wrong: tuple[bool, str]) -> None:
    """Raise the message of the first condition that is true."""
    for is_true, text in wrong:
        if is_true:
            raise BadArguments(text)


def expected_batch(drawn: Sampling, records: int) -> float:
    """The expected number of records in a step, by which a sum is divided to get the mean."""
    return max(1.0, drawn.expected(records))


def session_charge(
    document: Document,
    tag: str,
    drawn: Sampling,
    steps: int,
    target: PrivacyTarget,
    records: int,
    room: EpsilonPair | None = None,
) -> SessionCharge | None:
    """The session's charge, from its noise or from the ε it may cost. Checks both ceilings.

    `room`: what is left of them, for advice; all by default.
    """
    if target.noise is None and target.epsilon is None and randomised.missing(document, tag) is None:
        return None
    open_, other = (target.noise is None) == (target.epsilon is None), target.against not in _AGAINST
    refuse(
        (open_, "give the noise, or the epsilon that it may cost: one follows from the other"),
        (other, f"against {target.against!r}: an epsilon is against 'adserver' or 'coalition'"),
    )
    check_cost(target.noise, target.epsilon)
    ceilings, mechanism = document.training, document.mechanism(GRADIENT)
    least, from_ = (0.0, "at least 0") if mechanism.kind == "laplace" else (math.ulp(0.0), "over 0")
    refuse(
        (
            target.delta is not None and not least <= target.delta < 1,
            f"delta={target.delta}: with {mechanism.kind} noise it is {from_}, and less than 1",
        )
    )
    assert ceilings is not None, "a document with models has ceilings"
    delta = Account(document).default_session_delta(tag) if target.delta is None else target.delta
    try:
        noise = target.noise
        if noise is None:
            noise = max(_noise(drawn, mechanism.kind, steps, delta, target), mechanism.noise_floor)
        if noise < mechanism.noise_floor:
            raise NoiseTooSmall(f"noise {noise:g} is below the declared {mechanism.noise_floor:g}")
        charge = sampling.session_charge(
            drawn, mechanism.kind, noise, steps, delta, records=records, k=document.k, may_amplify=True
        )
    except NotDeclared as error:
        raise BadArguments(str(error)) from None
    most = EpsilonPair(ceilings.adserver.epsilon, ceilings.coalition.epsilon)
    _check(charge, drawn, target, document, records, most if room is None else room)
    return charge


def check_size(document: Document, drawn: Sampling, records: int) -> None:
    """Refuse too few records, and batches that are too large, as helpers do, with the batches that fit."""
    batch, most = math.ceil(drawn.expected(records)), document.max_records
    try:
        checks.check_size(document, GRADIENT, records, batch)
    except TooManyRecords as error:
        fits = f"sampling_rate = {at_most(most / (records * (1 - drawn.held_out)))}"
        if drawn.batches:
            fits = f"batches = {-(-batch * drawn.batches // most)}"
        error.args = (f"{error}; {fits} would fit",)
        raise


def check_budget(
    state: BudgetState, entry: BudgetEntry, drawn: Sampling, target: PrivacyTarget, records: int
) -> None:
    """Refuse what helpers would refuse when the session is opened, with what would fit."""
    try:
        state.check(entry)
    except BudgetExhausted as error:
        error.args = (f"{error}{_that_fits(state, entry, drawn, target, records, error)}",)
        raise


def _that_fits(
    state: BudgetState,
    entry: BudgetEntry,
    drawn: Sampling,
    target: PrivacyTarget,
    records: int,
    refused: BudgetExhausted,
) -> str:
    """The ε that would fit where ε was asked for; where noise was, the number of steps."""
    charge, noise, k = entry.charge, refused.facts()["noise_that_fits"], state.document.k
    assert isinstance(charge, SessionCharge)
    if refused.facts()["left_epsilon"] < USEFUL_EPSILON:
        return ""
    if target.noise is None:
        if noise is None:
            return ""
        fitting = replace(charge, noise=noise)
        alone = target.against == "adserver"
        epsilon = adserver_epsilon(fitting) if alone else coalition_epsilon(fitting)
        return f", as it would with epsilon = {at_most(epsilon)}"

    def is_over(steps: int) -> bool:
        law = charge.mechanism, charge.noise, steps, charge.delta
        return not state.fits(
            replace(
                entry, charge=sampling.session_charge(drawn, *law, records=records, k=k, may_amplify=True)
            )
        )

    steps = bisect_left(range(1, drawn.steps(charge.steps)), 1, key=is_over)
    return f", as it would with steps = {steps}" if steps else ""


def _check(
    charge: SessionCharge,
    drawn: Sampling,
    target: PrivacyTarget,
    document: Document,
    records: int,
    room: EpsilonPair,
) -> None:
    """Refuse a charge above the target, or above what the document allows."""
    ceilings = document.training
    assert ceilings is not None
    alone, together = adserver_epsilon(charge), coalition_epsilon(charge)
    asked = target.epsilon if target.epsilon is not None else math.inf
    if (alone if target.against == "adserver" else together) > asked * (1 + _ROUNDED):
        raise BadArguments(
            f"batches of {expected_batch(drawn, records):.0f} records may fall below k = {document.k}. Such "
            f"batches hide nobody: this would cost ε = {both(alone, together)}, not {asked:g}. "
            f"Take {_rate_that_hides(charge, asked, drawn, document, records)}"
        )
    for what, name, figure, most, left in (
        (TRAINING, "adserver", alone, ceilings.adserver.epsilon, room.adserver),
        (TRAINING_COALITION, "coalition", together, ceilings.coalition.epsilon, room.coalition),
    ):
        if figure > most and left > 0:
            raise OverCeiling(
                f"this costs ε = {both(alone, together)}; {what} is {most:g} in all: take more noise, fewer "
                f"steps or a lower rate, or ask for epsilon={at_most(left)}, against={name!r}"
            )


def _rate_that_hides(
    charge: SessionCharge, epsilon: float, drawn: Sampling, document: Document, records: int
) -> str:
    """The least rate, in thousandths, at which batches hardly ever fall below k."""
    rates = [place / 1000 for place in range(1, 1000)]
    reach = partial(batches_reach_k, records=records, k=document.k, held_out=drawn.held_out, epsilon=epsilon)
    place = bisect_left(rates, 1, key=lambda rate: reach(replace(charge, rate=rate)))
    return f"sampling_rate = {rates[place]:g} or more" if place < len(rates) else "sampling = 'whole'"


def _noise(drawn: Sampling, kind: str, steps: int, delta: float, target: PrivacyTarget) -> float:
    epsilon = target.epsilon or 0.0
    uses, rate = drawn.uses(steps), drawn.rate or 1.0
    limits = (epsilon, math.inf) if target.against == "adserver" else (math.inf, epsilon)
    try:
        return calibration.noise_for_session(kind, rate, uses, delta, *limits)  # type: ignore[arg-type]
    except NotDeclared:
        raise BadArguments(
            f"no noise makes {steps} steps cost only ε = {epsilon:g} at δ = {delta:g}. Take a larger ε"
        ) from None
