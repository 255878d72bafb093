"""An open session with all that its steps need: made again after a restart. Run by a helper."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Column, Query, Steps
from maskedlark.release.checks import Scope
from maskedlark.release.messages import SessionRequest
from maskedlark.release.parts import Batches, Work
from maskedlark.release.shards import Computation
from maskedlark.wire.steps import Ranges

_SHARED = b"maskedlark v2 step randomness"


@dataclass(frozen=True, repr=False)
class Session:
    """What a session's request fixes, over the datasets that it names."""

    request: SessionRequest
    request_digest: bytes
    scope: Scope
    steps: Steps
    is_amplified: bool
    """Whether it was charged less because nobody knows its batches."""
    batches: Batches
    computed: str
    """What the same share is computed with: the function's engine, and how batches are drawn."""
    engine: str
    """What the same answer is made with."""

    @property
    def records(self) -> int:
        """The model's records in all datasets."""
        return self.scope.size(self.request.tag)

    def slots(self, step: int) -> bytes:
        """The step's slot in every dataset."""
        return b"".join((first + step).to_bytes(8, "big") for first in self.request.slots)

    def shared(self, step: int) -> bytes:
        """A secret of all helpers for one step, so that a function draws the same randomness at each."""
        return hashlib.sha256(_SHARED + b"".join(self.scope.seeds) + self.slots(step)).digest()

    def check_column(self, column: Column) -> None:
        """Refuse a step that costs more than was charged when the session was opened."""
        if self.is_amplified and not column.allows_amplification:
            raise BadArguments(
                f"a record may add {column.largest_l2:g} to {column.name}, over half of its sensitivity of "
                f"{column.sensitivity.l2:g}; the session was charged for half. Close it, and correct the "
                "function's declaration"
            )

    def check_chosen(self, chosen: Ranges) -> None:
        """Refuse records named where they must not be, or that do not exist."""
        if bool(chosen) != (self.request.sampling.kind == "chosen"):
            raise BadArguments("records are named by steps of sessions that choose them, and by no others")
        if any(not 0 <= start < stop <= self.records for start, stop in chosen):
            raise BadArguments(f"records are numbered from 0 to {self.records}")

    def work(self, step: int, chosen: Ranges) -> Work:
        """A step's records. Below k none counts, after the same work: time must not reveal what is hidden."""
        return self.batches.work(step, chosen).at_least(self.scope.document.k)

    def computation(self, query: Query) -> Computation:
        """What is computed over them: where labels were randomised in the browser, that is undone first."""
        document = self.scope.document
        if self.request.noise is not None:
            return Computation(query)
        return Computation(query, (document.trained(self.request.tag), len(document.helpers)))


def batches_of(
    request: SessionRequest, charge: SessionCharge | None, seeds: Sequence[bytes], sizes: Sequence[int]
) -> Batches:
    """The batches of a session. `sizes`: records of the model, by dataset. Run by helpers."""

    def most(step: int) -> int:
        assert charge is not None
        allowed = sampling.max_batches(request.sampling, charge, request.sampling.uses(step + 1))
        return min(charge.batches, allowed)

    limit = None if charge is None else most
    return Batches(request.sampling, request.tag, seeds, request.slots, sizes, limit)


def body_digest(body: bytes, chosen: Ranges) -> bytes:
    """The digest of all that a step sends. Run by helpers, and by anyone auditing one with its folder."""
    named = b"".join(start.to_bytes(8, "big") + stop.to_bytes(8, "big") for start, stop in chosen)
    return hashlib.sha256(len(named).to_bytes(8, "big") + named + body).digest()
