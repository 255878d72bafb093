"""What a training run will cost and how noisy it will be, before anybody is asked. Run by the ad server."""

import math
from dataclasses import dataclass

from maskedlark.core import field
from maskedlark.errors import NotDeclared
from maskedlark.privacy import calibration, sampling
from maskedlark.privacy.course import Course, adserver_epsilon, coalition_epsilon
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadArguments, NoiseTooSmall
from maskedlark.privacy.sampling import Sampling


@dataclass(frozen=True)
class Plan:
    """A run, as it will be charged."""

    course: Course | None
    """None where labels were randomised in the browser."""
    sampling: Sampling
    steps: int
    records: int
    """Of the model, fakes included."""
    bound: float
    """ψ: no record's gradient is longer."""
    size: int
    """Parameters."""
    helpers: int
    bytes_a_step: int
    """Up and down, all helpers together."""

    @property
    def noise(self) -> float | None:
        """The multiplier, in units of 2 ψ."""
        return None if self.course is None else self.course.noise

    @property
    def epsilon(self) -> float:
        """Against the ad server alone."""
        return 0.0 if self.course is None else adserver_epsilon(self.course)

    @property
    def coalition_epsilon(self) -> float:
        """Against the ad server with all helpers but one, or a curious helper: they know the batches."""
        return 0.0 if self.course is None else coalition_epsilon(self.course)

    @property
    def batch(self) -> float:
        """Records that a step is expected to use."""
        return expected_batch(self.sampling, self.records)

    @property
    def deviation(self) -> float:
        """Of the noise of all helpers, in one number of a step's mean gradient."""
        if self.course is None:
            return 0.0
        scale = math.sqrt(2) if self.course.kind == "laplace" else 1.0
        return scale * self.course.noise * 2 * self.bound * math.sqrt(self.helpers) / self.batch

    @property
    def signal(self) -> float:
        """How long a step's mean gradient can be at most, over how long its noise is."""
        return math.inf if self.course is None else self.bound / (self.deviation * math.sqrt(self.size))

    def __str__(self) -> str:
        if self.course is None:
            return (
                f"{self.steps} steps of {self.batch:.0f} records; labels were randomised: nothing is charged"
            )
        return (
            f"{self.steps} steps of {self.batch:.0f} of {self.records} records, {self._drawn()}\n"
            f"ε = {self.epsilon:.3g} against the ad server alone, {self.coalition_epsilon:.3g} against it "
            f"with all helpers but one; δ = {self.course.delta:.3g}\n"
            f"noise {self.course.noise:g} times the sensitivity at each of {self.helpers} helpers: "
            f"{self.deviation:.3g} on every number of a mean gradient, which is at most {self.bound:g} long\n"
            f"signal to noise at most {self.signal:.3g} a step; {self.bytes_a_step / 1e6:.2f} MB a step, "
            f"{self.steps * self.bytes_a_step / 1e6:.0f} MB in all"
        )

    def _drawn(self) -> str:
        kind = self.sampling.kind
        if kind == "poisson":
            return f"each drawn with probability {self.sampling.rate:g}"
        if kind == "partition":
            return f"each once in {self.sampling.batches} steps"
        return "all of them" if kind == "whole" else "chosen by the caller, which hides nobody"


def expected_batch(drawn: Sampling, records: int) -> float:
    """How many records a step is expected to use: what a sum is divided by to be a mean."""
    left = records * (1 - drawn.held_out)
    if drawn.rate is not None:
        return max(1.0, left * drawn.rate)
    return max(1.0, left / (drawn.batches or 1))


def course(
    document: Document,
    tag: str,
    drawn: Sampling,
    steps: int,
    delta: float | None,
    records: int,
    *,
    noise: float | None,
    epsilon: float | None,
    against: str,
) -> Course | None:
    """What a session will be charged as: from the noise, or from what it may cost. Checks both ceilings."""
    mechanism, declared = document.mechanisms["train"], document.trained(tag)
    if noise is None and epsilon is None and declared.randomised_response is not None:
        return None
    if (noise is None) == (epsilon is None):
        raise BadArguments("give the noise, or the epsilon that it may cost: one follows from the other")
    if against not in ("adserver", "coalition"):
        raise BadArguments(f"against {against!r}: an epsilon is against 'adserver' or 'coalition'")
    ceilings = document.training
    assert ceilings is not None, "a document with models has ceilings"
    most = document.training.adserver.delta / len(document.models) / 2 if document.training else 0.0
    share = most if delta is None else delta
    if noise is None:
        noise = _noise(drawn, mechanism.kind, steps, share, epsilon or 0.0, against)
        noise = max(noise, mechanism.noise_floor)
    if noise < mechanism.noise_floor:
        raise NoiseTooSmall(f"noise {noise:g} is below the declared {mechanism.noise_floor:g}")
    found = sampling.course(drawn, mechanism.kind, noise, steps, share, records=records, k=document.k)
    figures = adserver_epsilon(found), coalition_epsilon(found)
    for what, figure, most_epsilon in (
        ("the ad server", figures[0], ceilings.adserver.epsilon),
        ("the ad server with all helpers but one", figures[1], ceilings.coalition.epsilon),
    ):
        if figure > most_epsilon:
            raise BadArguments(
                f"against {what} this costs ε = {figure:.4g}, and the document allows {most_epsilon:g}: take "
                "more noise, fewer steps or a lower rate"
            )
    return found


def _noise(drawn: Sampling, kind: str, steps: int, delta: float, epsilon: float, against: str) -> float:
    uses, rate = drawn.uses(steps), drawn.rate or 1.0
    limits = (epsilon, math.inf) if against == "adserver" else (math.inf, epsilon)
    try:
        return calibration.noise_for_course(kind, rate, uses, delta, *limits)  # type: ignore[arg-type]
    except NotDeclared:
        raise BadArguments(
            f"no noise makes {steps} steps cost only ε = {epsilon:g} at δ = {delta:g}"
        ) from None


def bytes_a_step(body: int, size: int, helpers: int) -> int:
    """Up and down, all helpers together, without HTTP's own headers."""
    return helpers * (body + field.BYTES * size)
