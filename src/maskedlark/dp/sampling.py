"""How a session's batches are drawn, as receipts state it, and the charge that follows from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from maskedlark.core.batches import room
from maskedlark.dp.mechanisms import Kind
from maskedlark.dp.session_charge import (
    MAX_STEPS,
    ClosedSessionCharge,
    SessionCharge,
    batch_bound,
    batches_reach_k,
)
from maskedlark.wire.message import Settings


class Sampling(Settings):
    """Poisson batches at a rate; a fresh partition every epoch; the whole dataset; or the ad server's choice.

    Only batches that the ad server does not know amplify privacy against it, and of these only Poisson ones
    are accounted that way.
    """

    kind: Literal["poisson", "partition", "whole", "chosen"]
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    batches: Annotated[int, Field(ge=1, le=MAX_STEPS)] | None = None
    """For a partition: the number of steps per epoch."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The fraction of records that is in no batch."""

    @model_validator(mode="after")
    def _fitting(self) -> "Sampling":
        if (self.kind == "poisson") != (self.rate is not None):
            raise ValueError("poisson batches have a rate, no others do")
        if (self.kind == "partition") != (self.batches is not None):
            raise ValueError("a partition has a number of batches, nothing else does")
        return self

    def expected(self, records: int) -> float:
        """The expected number of records in a step."""
        left = records * (1 - self.held_out)
        return left / (self.batches or 1) if self.rate is None else left * self.rate

    def most(self, sizes: Sequence[int]) -> int:
        """The most records in a step, of datasets of these sizes: helpers cut a larger Poisson batch."""
        if self.rate is not None:
            return room(self.rate * (1 - self.held_out), sum(sizes))
        return sum(-(-size // (self.batches or 1)) for size in sizes)

    def uses(self, steps: int) -> int:
        """How often one record may have been used in `steps` steps: once per epoch, else once per step."""
        return -(-steps // (self.batches or 1))

    def steps(self, uses: int) -> int:
        """The number of steps of `uses` uses: a partition's whole epochs."""
        return uses * (self.batches or 1)


def session_charge(
    sampling: Sampling,
    kind: Kind,
    noise: float,
    steps: int,
    delta: float,
    *,
    records: int,
    k: int,
    may_amplify: bool,
) -> SessionCharge:
    """A session's charge. Run by helpers and planners.

    Amplified only if the function says that it may be (`Steps.allows_amplification`), and if batches hardly
    ever fall below `k`. Otherwise its rate is 1: both figures are those of known batches.
    """
    uses = sampling.uses(steps)
    if sampling.rate is None or sampling.rate == 1:
        return SessionCharge(kind, noise, 1.0, uses, uses, delta)
    batches = batch_bound(kind, noise, sampling.rate, uses, delta)
    charge = SessionCharge(kind, noise, sampling.rate, uses, batches, delta)
    amplified = may_amplify and batches_reach_k(charge, records, k, sampling.held_out)
    return charge if amplified else replace(charge, rate=1.0)


def closed(sampling: Sampling, opened: SessionCharge, used: int) -> ClosedSessionCharge:
    """A session's charge when it is closed after `used` steps."""
    return opened.closed(sampling.uses(used), max_batches(sampling, opened, sampling.uses(used)))


def max_batches(sampling: Sampling, opened: SessionCharge, used: int) -> int:
    """The most batches that one record is in after `used` uses. Helpers enforce it."""
    kept = opened.kept(used)
    if sampling.rate is None or sampling.rate == 1:
        return kept
    return batch_bound(opened.mechanism, opened.noise, sampling.rate, opened.steps, opened.delta, kept)
