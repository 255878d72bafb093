"""Session charges: what a training session reserves, and the two figures of what it costs.

A session is a number of noisy sums, over batches that helpers draw. Its noise is in units of the full
sensitivity of a replaced secret, S = 2ψ, as that of single releases. Two adversaries, two figures:

- The ad server alone does not know the batches. At a Poisson rate q each sum is one of
  (1 - q) N(0, σ²) + q N(±S/2, σ²), and steps compose. `dp-accounting` has that pair as REPLACE_ONE, in units
  of S/2: it is given twice our noise. That is right only if no record adds more than S/2; where a function
  does not declare that, the rate is 1.
- Anyone who knows the batches (the ad server with all helpers but one, or a curious helper) sees one plain
  Gaussian release per batch that a record is in, which has a closed form. The first figure is never more.

Laplace noise is not amplified here: both figures are those of the batches that a record is in.

Of a session's δ, 13/16 are for its whole (12/16 with sampling). Each quarter at which it may be closed early
has 1/16: an end is chosen by what was seen, so each has to hold. A figure at an early end bounds the loss
itself, so it also holds for concurrent sessions: P(loss > ε + t) is at most δ / (1 - e^-t) where (ε, δ)
holds. With sampling, 1/16 is for what the batches themselves reveal: `batch_bound` and `batches_reach_k`.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.mechanisms import Kind, check_noise
from maskedlark.errors import NotDeclared
from maskedlark.wire.message import STRICT

MAX_STEPS = 1 << 20
"""Composing more takes longer than a request should."""
QUARTERS = 4
_END = 1 / 16
"""The part of δ for every earlier end, and for what batches reveal."""
_WHOLE, _SAMPLED = 13 / 16, 12 / 16
_APART = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The t of P(loss > ε + t): the best of them is used."""
_POINTS = 1 << 17
"""About this many points discretise the losses; the estimate is an upper bound for any number."""
_LOST = 1e-12
"""The part of δ set aside for the error of the transforms that compose losses."""
_OVERFULL = 2.0**-50
"""More rarely than this, in any dataset or in all, a step's batch exceeds its room (`core.batches`) and
records are left out. That depends on the other records, not on the label, and costs only this much of δ."""
_ROUNDED = 1e-6
_UNHEARD = 2.0**-40


@dataclass(frozen=True)
class SessionCharge:
    """Steps with this noise, over batches that a record is in at this rate. Receipts hold it as it is."""

    __pydantic_config__: ClassVar = STRICT

    mechanism: Kind
    noise: float
    rate: float
    """The Poisson rate; 1 where nothing is amplified, as where a record may add over S/2."""
    steps: int
    """How often one record may be used, as far as the ad server knows. For partitions: epochs."""
    batches: int
    """The most batches that one record is in. For partitions: epochs."""
    delta: float
    """Its own part of a model's δ."""

    def __post_init__(self) -> None:
        check_noise(self.noise)
        if self.mechanism not in ("laplace", "gaussian"):
            raise NotDeclared("a session has 'laplace' or 'gaussian' noise")
        if not 0 < self.rate <= 1:
            raise NotDeclared("a rate is over 0, and 1 at most")
        if not (1 <= self.steps <= MAX_STEPS and 0 <= self.batches <= self.steps):
            raise NotDeclared(f"a session has 1 to {MAX_STEPS} steps, and no record is in more batches")
        if not 0 <= self.delta < 1 or (self.delta == 0 and self.mechanism == "gaussian"):
            raise NotDeclared("a session has a delta below 1; with Gaussian noise, over 0")

    def kept(self, used: int) -> int:
        """How many steps count when it is closed after `used` steps: all quarters that were begun."""
        quarters = -(-used * QUARTERS // self.steps)
        return -(-quarters * self.steps // QUARTERS)

    def closed(self, used: int, batches: int) -> "ClosedSessionCharge":
        """Its charge when it is closed. `batches`: the most that a record is in, of the steps kept."""
        return ClosedSessionCharge(self, self.kept(used), batches)


@dataclass(frozen=True)
class ClosedSessionCharge:
    """The charge of a closed session: only some of its steps count."""

    session_charge: SessionCharge
    steps: int
    batches: int

    def __post_init__(self) -> None:
        whole = self.session_charge
        if not (0 <= self.steps <= whole.steps and 0 <= self.batches <= min(self.steps, whole.batches)):
            raise NotDeclared("a closed session has no more steps and batches than it had open")
        if self.steps not in {whole.kept(end * whole.steps // QUARTERS) for end in range(QUARTERS + 1)}:
            raise NotDeclared("a session ends at one of its quarters")

    @property
    def delta(self) -> float:
        """The δ that stays charged: none for a session that was never used."""
        return self.session_charge.delta if self.steps else 0.0


def adserver_epsilon(charge: SessionCharge | ClosedSessionCharge) -> float:
    """The ε against the ad server alone. Run by helpers, planners and auditors."""
    if isinstance(charge, ClosedSessionCharge):
        return _at_end(charge, adserver_epsilon, _unknown)
    sampled = _unknown(charge, charge.steps, charge.batches, _SAMPLED * charge.delta)
    return min(coalition_epsilon(charge), sampled)


def coalition_epsilon(charge: SessionCharge | ClosedSessionCharge) -> float:
    """The ε for known batches: against the ad server with all helpers but one, or a curious helper."""
    if isinstance(charge, ClosedSessionCharge):
        return _at_end(charge, coalition_epsilon, _known)
    return _known(charge, charge.steps, charge.batches, _WHOLE * charge.delta)


_Figure = Callable[[SessionCharge, int, int, float], float]
"""The figure of this many steps and batches of a session, at a δ."""


def _at_end(closed: ClosedSessionCharge, whole: Callable[[SessionCharge], float], figure: _Figure) -> float:
    charge = closed.session_charge
    if closed.steps == 0:
        return 0.0
    if closed.steps == charge.steps:
        return whole(charge)
    return min(whole(charge), _loss_bound(closed, figure))


def _loss_bound(closed: ClosedSessionCharge, figure: _Figure) -> float:
    """A bound on the loss itself at an early end, except with the end's δ."""
    charge, delta = closed.session_charge, _END * closed.session_charge.delta
    pure = _known(charge, closed.steps, closed.batches, 0.0) if charge.mechanism == "laplace" else math.inf
    if delta == 0:  # Only sessions with Laplace noise have none.
        return pure
    bounds = [
        figure(charge, closed.steps, closed.batches, delta * -math.expm1(-apart)) + apart for apart in _APART
    ]
    return min(pure, *bounds)


def _unknown(charge: SessionCharge, steps: int, batches: int, delta: float) -> float:
    """The batches are unknown: the lower of the figures with sampling and without."""
    known = _known(charge, steps, batches, delta)
    if charge.mechanism == "laplace" or charge.rate == 1:
        return known
    return min(known, sampled_epsilon(charge.noise, charge.rate, steps, delta))


def _known(charge: SessionCharge, steps: int, batches: int, delta: float) -> float:
    """The batches are known: one release for every batch that a record is in."""
    return accountant.epsilon([Charge(charge.mechanism, charge.noise, min(steps, batches))], delta)


@lru_cache(maxsize=4096)
def sampled_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """The ε of `steps` Gaussian sums over unknown Poisson batches. Takes a fraction of a second."""
    lost = _LOST + steps * _OVERFULL
    if delta <= lost:
        return math.inf
    epsilon = float(_losses(noise, rate, steps).get_epsilon_for_delta(delta - lost))
    return epsilon * (1 + _ROUNDED)


@lru_cache(maxsize=8)
def _losses(noise: float, rate: float, steps: int) -> Any:  # noqa: ANN401 - a library without types
    # Importing it takes seconds, which commands without accounting should not wait for.
    from dp_accounting import NeighboringRelation  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as losses  # noqa: PLC0415

    one = losses.from_gaussian_mechanism(
        # In units of S/2: a replaced record moves from one end of its range to the other.
        standard_deviation=2 * noise,
        sampling_prob=rate,
        value_discretization_interval=_interval(noise, rate, steps),
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(steps)


def _interval(noise: float, rate: float, steps: int) -> float:
    """The interval between two losses: a power of 2, so that every machine uses the same."""
    mean = rate * steps
    batches = min(steps, math.ceil(mean + 6 * math.sqrt(mean) + 6))
    widest = accountant.epsilon([Charge("gaussian", noise, batches)], 1e-9)
    return 2.0 ** math.floor(math.log2(max(widest, 1 / noise) / _POINTS))


@lru_cache(maxsize=4096)
def batch_bound(
    kind: Kind, noise: float, rate: float, steps: int, delta: float, kept: int | None = None
) -> int:
    """The least `batches` of a Poisson session, or of the steps kept of it: anyone can compute it.

    The true number would reveal something of who is in which batch, and so spoil what sampling hides. Helpers
    leave a record out of any batches beyond these; that is so rare that 1/32 of δ pays for it, at any end.
    """
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    allowed = _UNHEARD  # Laplace noise is not amplified: there is nothing hidden to spoil.
    if kind == "gaussian":
        allowed = _rare(delta, sampled_epsilon(noise, rate, steps, _SAMPLED * delta)) / QUARTERS
    draws = steps if kept is None else kept
    return bisect_left(range(draws), 1, key=lambda batches: binom.sf(batches, draws, rate) <= allowed)


def batches_reach_k(
    charge: SessionCharge, records: int, k: int, held_out: float = 0.0, epsilon: float | None = None
) -> bool:
    """Whether Poisson batches over `records` records are hardly ever below k: else nothing is amplified.

    A batch below k gives noise alone. Where one record makes the difference, it decides whether all others
    are in the sum, and cannot hide among them. If that is rare enough, 1/32 of δ pays for it; if not, the
    session's rate has to be 1. `epsilon`: the charge's against the ad server, or more, if it is known.
    """
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    if charge.mechanism == "laplace" or charge.rate == 1 or k <= 1:
        return True
    below = charge.steps * float(binom.cdf(k - 1, records, charge.rate * (1 - held_out)))
    return below <= _rare(charge.delta, adserver_epsilon(charge) if epsilon is None else epsilon)


def _rare(delta: float, epsilon: float) -> float:
    """The chance at which an event that breaks a mechanism of this ε costs 1/32 of δ."""
    return delta * _END / 2 / (1 + math.exp(min(epsilon, 700.0)))
