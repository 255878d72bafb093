"""A query, or a whole session, to be charged: its id, datasets and noise. Made by `release`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskedlark.dp import mechanisms
from maskedlark.dp.accountant import Charge
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.ledger.budget import BudgetEntry, Cost
from maskedlark.ledger.receipt import Balance, OpenedReceipt, ReleaseReceipt, SignedReceipt


@dataclass(frozen=True)
class SessionTerms:
    """The steps of a session, and the slots that they reserve."""

    slots: tuple[int, ...]
    """The slot of its first step, in every dataset."""
    steps: int
    sampling: Sampling
    body: bytes
    """The bytes of the request: steps are answered by it."""


@dataclass(frozen=True)
class QueryCharge:
    """A query to be charged, which has passed all other checks."""

    request: bytes
    """Its id; for a session, the session's id."""
    request_digest: bytes
    function: str
    computed: str
    """The function's engine: another one's answer is not what was charged."""
    tag: str | None
    datasets: tuple[bytes, ...]
    charge: Charge | SessionCharge | None
    """None where labels were randomised in the browser: nothing is charged."""
    expires: int
    """When the first of the datasets expires: nothing is answered then, and the noise's seed is deleted."""
    session: SessionTerms | None = None

    @property
    def engine(self) -> str:
        """What the same answers are made with: another engine must not answer again."""
        return engine(self.charge, self.computed)

    def entry(self) -> BudgetEntry | None:
        """The equivalent budget entry; None where nothing is charged."""
        if self.charge is None:
            return None
        return BudgetEntry(self.tag, self.datasets, self.charge, self.request if self.session else b"")

    def receipt(self, place: Mapping[str, Any], cost: Cost) -> ReleaseReceipt | OpenedReceipt:
        """What the helper signs. `place`: the receipt's helper, origin and place in the chain."""
        common = {
            **place,
            "request": self.request.hex(),
            "request_digest": self.request_digest.hex(),
            "function": self.function,
            "tag": self.tag,
            "datasets": tuple(dataset.hex() for dataset in self.datasets),
            "balance": Balance.of(cost),
        }
        if self.session is None:
            assert isinstance(self.charge, Charge), "a single query has a charge of its own"
            return ReleaseReceipt(**common, charge=self.charge)
        assert not isinstance(self.charge, Charge), "a session is charged whole"
        terms = self.session
        return OpenedReceipt(
            **common,
            slots=terms.slots,
            steps=terms.steps,
            sampling=terms.sampling,
            session_charge=self.charge,
        )


def engine(charge: Charge | SessionCharge | None, computed: str) -> str:
    """What the same answers are made with. `computed`: the function's part of it."""
    noise = mechanisms.engine(charge.mechanism) if charge else "no noise"
    return f"{noise}; {computed}"


@dataclass(frozen=True, repr=False)
class Charged:
    """A charged query: its receipt, and the seed of its noise."""

    receipt: SignedReceipt
    seed: bytes
