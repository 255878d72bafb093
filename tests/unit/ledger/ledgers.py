"""A ledger with an anchor in memory, as one helper has it."""

from pathlib import Path

from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.dp.accountant import Charge
from maskedlark.dp.mechanisms import Kind
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.sampling import session_charge as reserved
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.ledger.charge import QueryCharge, SessionTerms
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import Certificate, SignedCertificate, SignedReceipt, certify
from maskedlark.ledger.rows import ChainHead
from maskedlark.ledger.sessions import OpenSession, Sessions
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from maskedlark.storage.engine import Database, open_database
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters import cases

NOW = 1_900_000_000
DATASETS = [bytes([i]) * 32 for i in range(8)]


class AnchorInMemory:
    """An anchor that survives its ledger."""

    def __init__(self) -> None:
        self.heads: dict[str, ChainHead] = {}

    def origins(self) -> list[str]:
        return list(self.heads)

    def read(self, origin: str) -> ChainHead | None:
        return self.heads.get(origin)

    def write(self, origin: str, head: ChainHead) -> None:
        before = self.heads.get(origin)
        assert before is None or before.number <= head.number, "an anchor never goes back"
        self.heads[origin] = head


class Signs:
    """A helper's receipt key, certified for a year."""

    def __init__(self, place: int = 0, key: SigningKey | None = None) -> None:
        self.helper = f"helper-{place}"
        self.key = key or SigningKey(FixedRandomness(f"receipts {place}".encode()).bytes(32))
        certificate = Certificate(
            helper=self.helper,
            key=self.key.verifying.public.hex(),
            not_before=NOW - 1000,
            not_after=NOW + 31_536_000,
        )
        self.certificate = certify(certificate, cases.HELPER_KEYS[place])

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        return self.key, self.certificate


def at(
    folder: Path,
    anchor: AnchorInMemory | None = None,
    place: int = 0,
    url: str | None = None,
    now: int = NOW,
    rng: Randomness | None = None,
) -> tuple[Ledger, Database, AnchorInMemory]:
    anchor = anchor or AnchorInMemory()
    database = open_database(url or f"sqlite:///{folder / 'ledger.sqlite'}")
    return (
        Ledger(database, anchor, Signs(place), FixedClock(now), rng or SystemRandomness()),
        database,
        anchor,
    )


def freeze(
    ledger: Ledger, database: Database, document: Document, *datasets: bytes, purpose=Purpose.AGGREGATE
):
    for dataset in datasets:
        with database.write() as connection:
            made = ledger.freeze(connection, document, purpose, dataset, 1000)
        ledger.advance_anchor(document.origin, made)


def question(
    number: int,
    *datasets: bytes,
    noise: float = 2.0,
    columns: int = 1,
    kind: Kind = "laplace",
    tag: str | None = None,
    version: int = 1,
    expires: int = 1 << 40,
    function: str | None = None,
) -> QueryCharge:
    """A question of its own id; the same number is the same question."""
    function = function or ("sums" if tag is None else "cells")
    return QueryCharge(
        request=number.to_bytes(16, "big"),
        request_digest=repr((number, noise, columns)).encode().ljust(32)[:32],
        function=function,
        computed=f"{function} {version}",
        tag=tag,
        datasets=datasets or (DATASETS[0],),
        charge=Charge(kind, noise, columns),
        expires=expires,
    )


class ChargedSessions(Sessions):
    """Sessions that are charged here: over HTTP `release` does it."""

    def open(self, document: Document, asked: QueryCharge) -> OpenSession:
        self._ledger.charge(document, asked)
        return self.find(document.origin, asked.request)


def opening(
    number: int,
    *datasets: bytes,
    noise: float = 4.0,
    steps: int = 40,
    delta: float = 1e-8,
    sampling: Sampling | None = None,
    tag: str = "clicks",
    records: int = 100_000,
    k: int = 1,
    charged: bool = True,
    version: int = 1,
    slots: tuple[int, ...] | None = None,
    expires: int = 1 << 40,
) -> QueryCharge:
    """A session of its own id and slots, over Poisson batches; the same number is the same session."""
    sampling = sampling or Sampling(kind="poisson", rate=0.02)
    return QueryCharge(
        request=(1 << 64 | number).to_bytes(16, "big"),
        request_digest=repr((number, noise, steps)).encode().ljust(32)[:32],
        function="gradient",
        computed=f"gradient {version}",
        tag=tag,
        datasets=datasets or (DATASETS[0],),
        charge=reserved(sampling, "gaussian", noise, steps, delta, records=records, k=k, may_amplify=True)
        if charged
        else None,
        expires=expires,
        session=SessionTerms(
            slots or (number << 24,) * max(1, len(datasets)), steps, sampling, b"the request"
        ),
    )


def session_charge(asked: QueryCharge) -> SessionCharge:
    """Of a session that is charged."""
    assert isinstance(asked.charge, SessionCharge)
    return asked.charge


def terms(asked: QueryCharge) -> SessionTerms:
    """Of a session."""
    assert asked.session is not None
    return asked.session


def chain(ledger: Ledger, origin: str = "ads.example") -> list[SignedReceipt]:
    return ledger.receipts(origin)
