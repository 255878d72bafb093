"""Courses: what a training session reserves, and the two figures of what it costs.

A *course* is so many noisy sums, over batches that helpers draw. Its noise is in units of the full
sensitivity of a replaced secret, S = 2ψ, as that of single releases. Two adversaries, two figures:

- the ad server alone does not know the batches. At a Poisson rate q each sum is one of (1 - q) N(0, σ²) +
  q N(±S/2, σ²), and steps compose. `dp-accounting` has that pair as REPLACE_ONE, in units of S/2: it is told
  twice our noise.
- who knows the batches, the ad server with all helpers but one, or a curious helper: as many plain Gaussian
  releases as batches that a record is in, which have a closed form. The ad server's figure is never more.

Laplace noise is not amplified here: both figures are those of the batches that a record is in.

Of a course's δ, 13/16 are for its whole (12/16 with sampling). Each quarter at which it may be closed early
has 1/16: an end is chosen by what was seen, so each has to hold. A figure at an early end bounds the loss
itself, so that it holds for sessions that run side by side: where (ε, δ) holds, P(loss > ε + t) is at most
δ / (1 - e^-t). With sampling, 1/16 is for what batches themselves say: `announced` and `crowded`.
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
from maskedlark.parameters.settings import STRICT

MAX_STEPS = 1 << 20
"""Composing more takes longer than a request should."""
QUARTERS = 4
_END = 1 / 16
"""The part of δ for every earlier end, and for what batches say."""
_WHOLE = 13 / 16
_APART = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The t of P(loss > ε + t): the best of them is taken."""
_POINTS = 1 << 17
"""Losses are discretised to about so many: the estimate is from above, however many."""
_LOST = 1e-12
"""The transforms that compose losses err by less: so much of δ is left to them."""
_OVERFULL = 2.0**-50
"""A step's batch has more records than its room (`core.batches`), so that some are left out, more rarely than
this in any dataset or in all. Whether it does is up to the others in it, whatever the label: it costs so much
of δ, and no more."""
_ROUNDED = 1e-6
_UNHEARD = 2.0**-40


@dataclass(frozen=True)
class SessionCharge:
    """So many steps with this noise, over batches that a record is in at this rate.

    Receipts hold it as it is.
    """

    __pydantic_config__: ClassVar = STRICT

    mechanism: Kind
    noise: float
    rate: float
    """The Poisson rate; 1 where nothing is amplified: partitions, whole datasets, batches that are known."""
    steps: int
    """How often one record may be used, as the ad server knows it. Partitions: epochs."""
    batches: int
    """The most batches that one record is in. Partitions: epochs."""
    delta: float
    """Its own part of a model's δ."""

    def __post_init__(self) -> None:
        check_noise(self.noise)
        if self.mechanism not in ("laplace", "gaussian"):
            raise NotDeclared("a course has 'laplace' or 'gaussian' noise")
        if not 0 < self.rate <= 1:
            raise NotDeclared("a rate is over 0, and 1 at most")
        if not (1 <= self.steps <= MAX_STEPS and 0 <= self.batches <= self.steps):
            raise NotDeclared(f"a course has 1 to {MAX_STEPS} steps, and no record is in more batches")
        if not 0 <= self.delta < 1 or (self.delta == 0 and self.mechanism == "gaussian"):
            raise NotDeclared("a course has a delta below 1; with Gaussian noise, over 0")

    def kept(self, used: int) -> int:
        """How many steps count when it is closed after so many: all quarters that were begun."""
        quarters = -(-used * QUARTERS // self.steps)
        return -(-quarters * self.steps // QUARTERS)

    def closed(self, used: int, batches: int) -> "ClosedSessionCharge":
        """As it counts when it is closed. `batches`: the most that a record is in, of the steps kept."""
        return ClosedSessionCharge(self, self.kept(used), batches)


@dataclass(frozen=True)
class ClosedSessionCharge:
    """A course that was closed: so many of its steps count."""

    course: SessionCharge
    steps: int
    batches: int

    def __post_init__(self) -> None:
        whole = self.course
        if not (0 <= self.steps <= whole.steps and 0 <= self.batches <= min(self.steps, whole.batches)):
            raise NotDeclared("a closed course has no more steps and batches than it had open")
        if self.steps not in {whole.kept(used) for used in _ends(whole.steps)}:
            raise NotDeclared("a course ends at one of its quarters")

    @property
    def delta(self) -> float:
        """The δ that stays charged: of a course that was never used, nothing."""
        return self.course.delta if self.steps else 0.0


def _ends(steps: int) -> list[int]:
    """Numbers of used steps, one for every end."""
    return [quarter * steps // QUARTERS for quarter in range(QUARTERS + 1)]


def adserver_epsilon(course: SessionCharge | ClosedSessionCharge) -> float:
    """The ε against the ad server alone. Run by helpers, by who plans, and by anyone who audits them."""
    if isinstance(course, ClosedSessionCharge):
        return _at_end(course, adserver_epsilon, _unknown)
    return min(coalition_epsilon(course), _unknown(course, course.steps, course.batches, _sampled(course)))


def coalition_epsilon(course: SessionCharge | ClosedSessionCharge) -> float:
    """The ε against who knows the batches: the ad server with all helpers but one, or a curious helper."""
    if isinstance(course, ClosedSessionCharge):
        return _at_end(course, coalition_epsilon, _known)
    return _known(course, course.steps, course.batches, _WHOLE * course.delta)


_Figure = Callable[[SessionCharge, int, int, float], float]
"""Of so many steps and batches of a course, at a δ."""


def _at_end(closed: ClosedSessionCharge, whole: Callable[[SessionCharge], float], figure: _Figure) -> float:
    course = closed.course
    if closed.steps == 0:
        return 0.0
    if closed.steps == course.steps:
        return whole(course)
    return min(whole(course), _loss_bound(closed, figure))


def _loss_bound(closed: ClosedSessionCharge, figure: _Figure) -> float:
    """What the loss itself stays below at an early end, but for the end's δ."""
    course, delta = closed.course, _END * closed.course.delta
    if course.mechanism == "laplace":
        pure = _known(course, closed.steps, closed.batches, 0.0)
        if delta == 0:
            return pure
    else:
        pure = math.inf
    bounds = [
        figure(course, closed.steps, closed.batches, delta * -math.expm1(-apart)) + apart for apart in _APART
    ]
    return min(pure, *bounds)


def _sampled(course: SessionCharge) -> float:
    return (_WHOLE - _END) * course.delta


def _unknown(course: SessionCharge, steps: int, batches: int, delta: float) -> float:
    """The batches are not known: what sampling hides need not be paid for, where it is less."""
    known = _known(course, steps, batches, delta)
    if course.mechanism == "laplace" or course.rate == 1:
        return known
    return min(known, sampled_epsilon(course.noise, course.rate, steps, delta))


def _known(course: SessionCharge, steps: int, batches: int, delta: float) -> float:
    """The batches are known: one release for every one that a record is in."""
    return accountant.epsilon([Charge(course.mechanism, course.noise, min(steps, batches))], delta)


@lru_cache(maxsize=4096)
def sampled_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """The ε of so many Gaussian sums over Poisson batches that nobody knows. A fraction of a second."""
    lost = _LOST + steps * _OVERFULL
    if delta <= lost:
        return math.inf
    found = float(_losses(noise, rate, steps).get_epsilon_for_delta(delta - lost))
    return found * (1 + _ROUNDED)


@lru_cache(maxsize=8)
def _losses(noise: float, rate: float, steps: int) -> Any:  # noqa: ANN401 - a library without types
    # Importing it takes seconds, which commands that account nothing need not wait for.
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
    """Between two losses: a power of 2, so that every machine takes the same."""
    mean = rate * steps
    batches = min(steps, math.ceil(mean + 6 * math.sqrt(mean) + 6))
    widest = accountant.epsilon([Charge("gaussian", noise, batches)], 1e-9)
    return 2.0 ** math.floor(math.log2(max(widest, 1 / noise) / _POINTS))


@lru_cache(maxsize=4096)
def announced(
    kind: Kind, noise: float, rate: float, steps: int, delta: float, kept: int | None = None
) -> int:
    """The least `batches` of a Poisson course, or of the steps kept of it: everybody can compute it.

    Saying the true number would say something of who is in which batch, and so spoil what sampling hides. A
    record would be in more batches than these so rarely that leaving it out of the rest, which helpers do, is
    paid for by 1/32 of δ, at any end.
    """
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    allowed = _UNHEARD  # Laplace noise is not amplified: nothing is hidden that could be spoiled.
    if kind == "gaussian":
        allowed = _rare(delta, sampled_epsilon(noise, rate, steps, (_WHOLE - _END) * delta)) / QUARTERS
    draws = steps if kept is None else kept
    return bisect_left(range(draws), 1, key=lambda batches: binom.sf(batches, draws, rate) <= allowed)


def crowded(course: SessionCharge, records: int, k: int, held_out: float = 0.0) -> bool:
    """Whether Poisson batches over so many records are hardly ever below k: else nothing is amplified.

    A batch below k gives noise alone: where it would have k with a record and not without, that record
    decides whether all others are in the sum, and cannot hide among them. That is paid for by 1/32 of δ where
    it is rare enough; where not, the course's rate has to be 1.
    """
    from scipy.stats import binom  # noqa: PLC0415 - slow to import

    if course.mechanism == "laplace" or course.rate == 1 or k <= 1:
        return True
    below = course.steps * float(binom.cdf(k - 1, records, course.rate * (1 - held_out)))
    return below <= _rare(course.delta, adserver_epsilon(course))


def _rare(delta: float, epsilon: float) -> float:
    """An event of this chance, by which a mechanism differs from one of that ε, costs 1/32 of δ."""
    return delta * _END / 2 / (1 + math.exp(min(epsilon, 700.0)))
