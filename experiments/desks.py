"""Helpers in memory that answer questions: no HTTP, and `release` as it is, with a ledger that is charged.

Run by figures. Keys, shares and noise follow from seeds, so that an answer can be made again.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.adserver import query_arguments, table
from maskedlark.adserver.combining import Answered, combine
from maskedlark.clock import FixedClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Coded, Measured, in_order
from maskedlark.functions.sums import Sums
from maskedlark.helper.anchor import FileAnchor
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import Certificate, ReleaseReceipt, SignedCertificate, certify
from maskedlark.parameters.document import Document
from maskedlark.parameters.drafting import draft
from maskedlark.randomness import FixedRandomness
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import Request
from maskedlark.release.release import Desk
from maskedlark.storage.engine import open_database
from maskedlark.wire.signatures import SigningKey

HELPERS = ("helper-0", "helper-1")
_NOW, _YEAR_S = 1_900_000_000, 31_536_000


def document(settings: str) -> Document:
    """A document of these settings, with our helpers in it."""
    listed = "\n".join(f'"{name}" = "{_key(name).verifying.public.hex()}"' for name in HELPERS)
    toml = f'origin = "ads.example"\n{settings}\n[helpers]\n{listed}\n'
    return draft(toml, _key("origin").verifying, _key("requests").verifying, None, _NOW)


def shared_out(
    document: Document, keys: Mapping[str, Sequence[str]], values: Sequence[ArrayLike]
) -> tuple[Measured, ...]:
    """Records as each helper holds them: all real, split as browsers split them, and nothing sealed."""
    secrets = document.measure.lift(values, np.ones(np.shape(values[0])[0], np.bool_))
    rng = FixedRandomness(b"maskedlark experiments shares")
    ids = sharing.random_rows(len(secrets), sharing.ID_BYTES, rng)
    shares = sharing.split(secrets, ids, Purpose.AGGREGATE, len(HELPERS), rng)
    others = [
        sharing.expand(seeds, ids, Purpose.AGGREGATE, place, secrets.shape[1])
        for place, seeds in enumerate(shares.seeds, 1)
    ]
    coded = {name: _coded(column) for name, column in keys.items()}
    return tuple(Measured(ids, coded, own) for own in (shares.explicit, *others))


def ask(
    document: Document,
    held: Sequence[Measured],
    values: Sequence[str],
    by: tuple[str, ...],
    noise: float,
    seed: int,
    confidence: float,
) -> table.Table:
    """One table, as the ad server's client shows it. All noise follows from the seed."""
    request = Request(
        id=f"{seed:032x}",
        datasets=(_digest(seed).hex(),),
        function=Sums.name,
        arguments=query_arguments.sums(values, by, None),
        noise=noise,
    )
    body, answers = request.encode(), {}
    for name, records in zip(HELPERS, held, strict=True):
        with _desk(name, seed) as desk:
            answers[name] = desk.answer(body, request, [_Held(_digest(seed), document, records)])
    plans = Sums().ask(document, request.arguments).plans
    receipts = {name: answer.receipt.claimed() for name, answer in answers.items()}
    released = {name: each for name, each in receipts.items() if isinstance(each, ReleaseReceipt)}
    kind = document.mechanisms[Purpose.AGGREGATE.value].kind
    tables = combine(plans, answers)
    answered = Answered(request.id, document, kind, noise, request.arguments, tables, released)
    return table.tables(answered, confidence)[0]


@dataclass(repr=False)
class _Held:
    """A sealed dataset, as one helper holds it."""

    digest: bytes
    document: Document
    held: Measured
    purpose: Purpose = Purpose.AGGREGATE
    expires: int = _NOW + _YEAR_S

    def size(self, tag: str | None) -> int:  # noqa: ARG002 - there is no model here
        return len(self.held)

    def records(self, tag: str | None) -> Measured:  # noqa: ARG002
        return self.held


class _Signs:
    """A helper's receipt key, certified for a year."""

    def __init__(self, helper: str) -> None:
        self.helper, self._own = helper, _key(f"receipts of {helper}")
        certificate = Certificate(
            helper=helper, key=self._own.verifying.public.hex(), not_before=_NOW, not_after=_NOW + _YEAR_S
        )
        self._certificate = certify(certificate, _key(helper))

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:  # noqa: ARG002 - the clock stands
        return self._own, self._certificate


@contextmanager
def _desk(helper: str, seed: int) -> Iterator[Desk]:
    """A helper's, with a ledger of its own that nothing was charged to."""
    rng = FixedRandomness(f"maskedlark experiments noise of {helper} {seed}".encode())
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder) / 'ledger.sqlite'}")
        try:
            ledger = Ledger(database, FileAnchor(Path(folder)), _Signs(helper), FixedClock(_NOW), rng)
            kept = KeptAnswers(Path(folder) / "answers")
            yield Desk(helper, ledger, {Sums.name: Sums()}, lambda _, dataset: dataset, kept)
        finally:
            database.close()


def _coded(column: Sequence[str]) -> Coded:
    entries = in_order(set(column))
    places = {entry: place for place, entry in enumerate(entries)}
    codes: NDArray[np.int32] = np.array([places[each] for each in column], np.int32)
    return Coded(codes, entries)


def _key(name: str) -> SigningKey:
    return SigningKey(FixedRandomness(f"maskedlark experiments key of {name}".encode()).bytes(32))


def _digest(seed: int) -> bytes:
    return hashlib.sha256(f"maskedlark experiments dataset {seed}".encode()).digest()
