"""The whole protocol in memory, with all parties in one process and no HTTP: read this first.

Browsers make reports of a table; the ad server stores them and selects a dataset; each helper opens its
parts; where the document declares checks, all helpers drop what is not valid; they freeze the dataset; the
helpers' release pipeline answers queries and training steps, and enforces k, noise and budget; the ad server
verifies receipts and adds up the shares. Every stage calls what the services call. Left out is what lies
around them: attribution, the parameter service, signed requests, chunks and retries, databases of reports,
refusing an id that came before, columns on disk, and how helpers agree on seeds and check keys.

Run by tests, experiments and audits. A `Workflow` is the ad server's client with its own helpers: query it
and train with it as with the services.

    >>> import torch
    >>> from maskedlark.clock import SystemClock
    >>> from maskedlark.randomness import SystemRandomness
    >>> from maskedlark.training.begin import begin
    >>> workflow = Workflow.declared('''
    ... k = 20
    ... keys = ["city"]
    ... values.profit = [0, 100]
    ... models.clicks.columns = [{kind = "bytes", count = 3}]
    ... budget = {epsilon = 90.0, delta = 1e-3}
    ... training = {adserver = {epsilon = 50.0, delta = 1e-4}, coalition = {epsilon = 80.0, delta = 1e-4}}
    ... mechanisms.sums = {kind = "laplace", noise_floor = 1.0}
    ... mechanisms.gradient = {kind = "gaussian", noise_floor = 0.2}
    ... ''', 2, SystemClock(), SystemRandomness())  # a document, and its two helpers
    >>> dataset = workflow.make_aggregate_dataset("sales", [["Rome"] * 50], [[7] * 50])
    >>> [row.group for row in workflow.query(["count", "profit"], by="city").rows]
    [('Rome',)]
    >>> dataset = workflow.make_training_dataset("ads", "clicks", np.eye(200, 3, dtype="u1"), [[0, 1] * 100])
    >>> model = torch.nn.Linear(3, 1)
    >>> for step in begin(workflow, model, loss="bce", tag="clicks", steps=4, batches=2, noise=2, delta=1e-6):
    ...     step.backward()  # model.weight.grad is the private gradient; now call your optimizer
"""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered
from maskedlark.adserver.queries import QuerySpec
from maskedlark.adserver.remote_helper import Connections, RemoteHelper
from maskedlark.adserver.report_store import ChunkStart, Selection
from maskedlark.browser.population import Population
from maskedlark.clock import Clock
from maskedlark.compute.engine import SerialEngine
from maskedlark.core import sharing, validity
from maskedlark.core.batches import SEED_BYTES
from maskedlark.core.declared import Measure, Model
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, Coded, Entry, Records, TrainingRecords, in_order
from maskedlark.errors import Expired, NotDeclared
from maskedlark.functions import Functions
from maskedlark.functions.function import AnyFunction
from maskedlark.helper import explanation
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.keyring import Keyring
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.ledger.sessions import Sessions
from maskedlark.parameters.document import Document
from maskedlark.parameters.drafting import draft
from maskedlark.parameters.settings import HelperIdentity
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import Explanation, RecordCounts, Request, SessionRequest
from maskedlark.release.release import Release
from maskedlark.storage.engine import open_database
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire import datasets
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.columns import Key
from maskedlark.wire.decrypt import Opened, decrypt_parts
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import SigningKey
from maskedlark.wire.steps import Ranges

ByTag = Mapping[Any, Records]
"""Records by model tag; those to aggregate by None."""
Columns = Sequence[ArrayLike]


@dataclass(frozen=True, repr=False)
class View:
    """What one helper sees of reports: its parts, sealed and opened."""

    opener: Opener
    parts: sharing.ByteRows
    opened: Opened

    @property
    def records(self) -> ByTag:
        """Open columns, and shares that look uniform to the helper."""
        opened = self.opened.records
        return {None: opened} if isinstance(opened, AggregateRecords) else opened

    @property
    def shares(self) -> FieldArray:
        """The shares, if all reports are of one model or to aggregate."""
        (records,) = self.records.values()
        return records.shares

    @property
    def numbers(self) -> FieldArray:
        """What it publishes for the check of every report."""
        assert self.opened.checks is not None, "the document declares checks"
        return self.opened.checks


def open_reports(openers: Iterable[Opener], stored: Sequence[bytes]) -> tuple[View, ...]:
    """The ad server gives every helper its part of each report; each opens its parts. Raises on a refusal."""
    views = []
    for opener in openers:
        parts = opener.layout.parts(stored, opener.place)
        # The helper opens, checks that columns are as declared and bound, and expands the share.
        opened = decrypt_parts(opener, parts.tobytes())
        if refused := opened.verdicts.refused:
            raise NotDeclared(f"{opener.helper} refuses reports: {dict(refused)}")
        views.append(View(opener, parts, opened))
    return tuple(views)


@dataclass(repr=False)
class FrozenDataset:
    """An immutable dataset as one helper holds it."""

    digest: bytes
    document: Document
    purpose: Purpose
    expires: int
    held: ByTag
    first_slot: int = 0
    """Of sessions."""

    def size(self, tag: str | None) -> int:
        """The number of records of this model."""
        return len(self.held[tag]) if tag in self.held else 0

    def stored_bytes(self, tag: str | None) -> int:  # noqa: ARG002 - whatever the model
        """Nothing is stored."""
        return 0

    def shards(self, tag: str | None) -> list["_Held"]:
        """The columns and shares of this model, in one shard."""
        return [_Held(self.held[tag])] if tag in self.held else []


@dataclass(frozen=True, repr=False)
class _Held:
    """Records in memory, as a shard."""

    held: Records

    def __len__(self) -> int:
        return len(self.held)

    def records(self, rows: NDArray[np.intp] | None = None) -> Records:
        return self.held.select_rows(rows)


class LocalHelper(RemoteHelper):
    """One of a document's helpers, in this process: the ad server sends it the same bytes as over HTTP."""

    def __init__(
        self, workflow: "Workflow", place: int, identity: SigningKey, folder: Path, rng: Randomness
    ) -> None:
        self._document, self._clock = workflow.document, workflow.clock
        self.name, self.place, self.identity = self._document.helpers[place].name, place, identity.verifying
        self.keys = Keyring(folder / "keys", self.name)
        self.keys.rotate(identity, "https://helper.example", self._clock.now(), rng)
        self.datasets: dict[bytes, FrozenDataset] = {}
        self.database = open_database(f"sqlite:///{folder / 'helper.sqlite'}")
        self.ledger = Ledger(self.database, FileAnchor(folder / "anchor"), self.keys, self._clock, rng)
        self.sessions = Sessions(self.ledger)
        self._folder, self._seeds, self._check_key = folder, workflow.seeds, workflow.check_key
        self.start(workflow.functions)

    def start(self, functions: Mapping[str, AnyFunction]) -> None:
        """Make the release pipeline as the helper service does, on top of existing state."""
        kept, seeds = KeptAnswers(self._folder / "answers"), lambda _, digest: self._seeds[digest]
        own = self.name, self.ledger, functions, seeds, self.find, kept
        self.releases = Release(*own, SerialEngine(), SystemRandomness())

    def opener(self, purpose: Purpose) -> Opener:
        """The opener of its parts of reports."""
        now = self._clock.now()
        terms = Terms(self._document.report_lifetime_s, now)
        layout, keys = self._document.layout(purpose), self.keys.opening_keys(now)
        return Opener(layout, self.place, keys, terms, self._check_key)

    def hold(self, dataset: FrozenDataset, invalid: int) -> None:
        """Store a dataset, and sign a receipt for it."""
        frozen = dataset.purpose, dataset.digest, sum(map(len, dataset.held.values()))
        if self._check_key is not None:
            self.ledger.pin(self._document, hashlib.sha256(self._check_key).digest())
        with self.database.write() as connection:
            stated = None if self._check_key is None else invalid
            signed = self.ledger.freeze(connection, self._document, *frozen, stated)
        self.ledger.advance_anchor(self._document.origin, signed)
        self.datasets[dataset.digest] = dataset

    def find(self, origin: str, digest: bytes) -> FrozenDataset:  # noqa: ARG002 - there is one
        """A dataset that has not expired."""
        if self.datasets[digest].expires <= self._clock.now():
            raise Expired(f"dataset {digest.hex()} holds a report that is past its lifetime: it is gone")
        return self.datasets[digest]

    def release(self, body: bytes) -> bytes:
        """Answer a query."""
        return self.releases.answer(self._document.origin, body, Request.decode(body)).encode()

    def explain(self, body: bytes) -> Explanation:
        """What a query would cost."""
        return explanation.of(self.releases.explain(self._document.origin, Request.decode(body)))

    def open_session(self, body: bytes) -> SignedReceipt:
        """Open a session, and charge all of it."""
        return self.releases.open_session(self._document.origin, body, SessionRequest.decode(body))

    def step(self, session: str, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:  # noqa: ARG002
        """A share of a step, with the helper's noise and mask."""
        return self.releases.step(self._document.origin, bytes.fromhex(session), number, body, chosen)

    def close_session(self, session: str) -> SignedReceipt:
        """Refund what was not used."""
        return self.releases.close_session(self._document.origin, bytes.fromhex(session))

    def counts(self, dataset: str) -> RecordCounts:
        """The number of records per model, and the first free slot."""
        frozen, origin = self.datasets[bytes.fromhex(dataset)], self._document.origin
        records = {tag: frozen.size(tag) for tag in self._document.declared_models}
        free_slot = max(frozen.first_slot, self.sessions.free_slot(origin, frozen.digest))
        return RecordCounts(
            records=records, shards=1, stored_bytes=dict.fromkeys(records, 0), free_slot=free_slot
        )

    def receipts(self, origin: str, after: int, most: int) -> list[SignedReceipt]:
        """The receipts after the one of that number."""
        return self.ledger.receipts(origin, after)[:most]


class _OneDocument(ParameterClient):
    """The one document of all parties."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def chain(self, origin: str) -> list[Document]:  # noqa: ARG002 - there is one
        return [self._document]

    def by_digest(self, digest: bytes) -> Document:  # noqa: ARG002
        return self._document


class _Here(Connections):
    """Helpers in this process, not over HTTP."""

    def __init__(self, local: Sequence[RemoteHelper]) -> None:
        self._local = local

    def helper(self, named: HelperIdentity, *_: object, **__: object) -> RemoteHelper:
        return next(each for each in self._local if each.name == named.name)


class Workflow(Client):
    """The ad server's client with browsers and the N helpers of one document. Closed when it is collected."""

    def __init__(
        self,
        document: Document,
        identities: Sequence[SigningKey],
        clock: Clock,
        rng: Randomness,
        *,
        noise: Sequence[Randomness] = (),
        functions: Mapping[str, AnyFunction] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`identities`: the keys of the document's helpers, in its order.

        `noise`: each helper's randomness, if draws must repeat; by default all use `rng`. `functions`: what
        helpers compute; by default all built-in ones. `folder`: for ledgers; by default a temporary one.
        """
        self.document, self.clock = document, clock
        self.functions = functions or Functions()
        self.seeds: dict[bytes, bytes] = {}
        """By dataset, the helpers' shared seed, which gives batches and masks. Hidden from the ad server."""
        self.check_key = rng.bytes(validity.KEY_BYTES) if document.checked else None
        """The helpers' key for checks of reports. Hidden from ad server and browsers."""
        self.stored: dict[str, list[bytes]] = {}
        """By dataset, the valid reports, which the ad server cannot read."""
        self.views: dict[str, tuple[View, ...]] = {}
        until = ExitStack()
        self._close = weakref.finalize(self, until.close)
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="maskedlark-"))
            until.callback(shutil.rmtree, folder, ignore_errors=True)
        self.helpers = list[LocalHelper]()
        draws = noise or [rng] * len(identities)
        for place, (identity, own, _) in enumerate(zip(identities, draws, document.helpers, strict=True)):
            self.helpers.append(LocalHelper(self, place, identity, folder / str(place), own))
            until.callback(self.helpers[-1].database.close)
        database = open_database(f"sqlite:///{folder / 'adserver.sqlite'}")
        until.callback(database.close)
        super().__init__(document.origin, database, _OneDocument(document), _Here(self.helpers), clock, rng)

    @classmethod
    def declared(
        cls, settings: str, helpers: int, clock: Clock, rng: Randomness, noise: Sequence[Randomness] = ()
    ) -> Self:
        """A workflow under a document of these settings, with this many helpers."""
        keys = [SigningKey(rng.bytes(32)) for _ in range(helpers + 2)]
        named = "\n".join(f'helper-{i} = "{key.verifying.public.hex()}"' for i, key in enumerate(keys[2:]))
        toml = f'origin = "ads.example"\n{settings}\n[helpers]\n{named}\n'
        document = draft(toml, keys[0].verifying, keys[1].verifying, None, clock.now())
        return cls(document, keys[2:], clock, rng, noise=noise)

    # Browsers report, the ad server stores and selects, helpers open and freeze.

    def make_aggregate_dataset(
        self, name: str, keys: Sequence[Sequence[Key]], values: Columns, decoded: bool = False
    ) -> bytes:
        """A frozen dataset to aggregate: a column for every declared key and value. Returns its digest.

        `decoded`: skip sealing and opening; helpers get the columns and shares directly.
        """
        if not decoded:
            return self.freeze(name, Purpose.AGGREGATE, self._browsers().measure(keys, values))
        columns, secrets = self._browsers().measure_columns(keys, values)
        ids, shares = self._split(self.document.measure, secrets)
        coded = dict(zip(self.document.keys, map(_coded, columns), strict=True))
        return self.hold(
            name, Purpose.AGGREGATE, [{None: AggregateRecords(ids, coded, own)} for own in shares]
        )

    def make_training_dataset(
        self, name: str, tag: str, features: sharing.ByteRows, labels: Columns, decoded: bool = False
    ) -> bytes:
        """A frozen dataset to train: byte features (n, d), a column for every label. Returns its digest."""
        if not decoded:
            return self.freeze(name, Purpose.TRAIN, self._browsers().train(tag, features, labels))
        rows, candidates, secrets = self._browsers().train_columns(tag, features, labels)
        ids, shares = self._split(self.document.declared_models[tag], secrets)
        shown = tuple(each[:1] if (each == each[:1]).all() else each for each in candidates)
        return self.hold(
            name, Purpose.TRAIN, [{tag: TrainingRecords(ids, rows, shown, own)} for own in shares]
        )

    def _browsers(self) -> Population:
        """Browsers, one per record, that saw the ad long enough ago to have reported by now."""
        now = self.clock.now()
        keys = tuple(each.keys.sealing_key(now) for each in self.helpers)
        seen = now - self.document.attribution_window_s - self.document.delay.max_s
        return Population(self.document, keys, seen, self._rng)

    def freeze(self, name: str, purpose: Purpose, reports: Iterable[list[bytes]]) -> bytes:
        """A frozen dataset of these reports, without those that are not valid. Returns its digest."""
        openers, invalid = [each.opener(purpose) for each in self.helpers], 0
        self.stored[name] = [each for some in reports for each in some]
        self.views[name] = open_reports(openers, self.stored[name])
        if self.document.checked:
            valid = validity.valid([view.numbers for view in self.views[name]])
            if invalid := int((~valid).sum()):
                self.stored[name] = list(compress(self.stored[name], valid))
                self.views[name] = open_reports(openers, self.stored[name])
        heads = self.views[name][0].opened.heads
        digest = datasets.digest(self.document.origin, self.document.digest, purpose, heads)
        return self.hold(name, purpose, [each.records for each in self.views[name]], digest, invalid=invalid)

    def _split(
        self, declared: Measure | Model, secrets: FieldArray
    ) -> tuple[sharing.ByteRows, list[FieldArray]]:
        """Ids, and what each helper holds of its shares, as browsers make them."""
        purpose, count = declared.purpose, secrets.shape[1]
        ids = sharing.random_rows(len(secrets), sharing.ID_BYTES, self._rng)
        carried = sharing.split(secrets, ids, purpose, len(self.helpers), self._rng).carried()
        return ids, [
            declared.hold(sharing.recover(own, ids, purpose, place, count), place)
            for place, own in enumerate(carried)
        ]

    def hold(
        self,
        name: str,
        purpose: Purpose,
        held: Sequence[ByTag],
        digest: bytes | None = None,
        seed: bytes | None = None,
        first_slot: int = 0,
        invalid: int = 0,
    ) -> bytes:
        """Freeze what every helper holds of a dataset. Returns its digest.

        `seed`: the helpers' shared seed; random by default. `first_slot`: the first slot for sessions.
        `invalid`: how many reports were left out because they are not valid.
        """
        digest = digest or self._rng.bytes(32)
        self.seeds[digest] = seed or self._rng.bytes(SEED_BYTES)
        expires = self.clock.now() + self.document.report_lifetime_s
        for helper, own in zip(self.helpers, held, strict=True):
            helper.hold(FrozenDataset(digest, self.document, purpose, expires, own, first_slot), invalid)
        records, second = sum(map(len, held[0].values())), len(self.datasets())
        selection = Selection(purpose, self.document.digest, second, second + 1)
        self._datasets.add(name, selection, [ChunkStart(second, b"", records)])
        self._datasets.freeze(name, digest, records)
        return digest

    def close(self) -> None:
        """Close databases and files."""
        self._close()

    def _ask(self, spec: QuerySpec, reuse: bool = False) -> Answered:
        # Without checking for expired datasets: helpers here do not know datasets by name.
        return self._queries.ask(spec, reuse)


def _coded(column: Sequence[Entry]) -> Coded:
    entries = in_order(set(column))
    places = {entry: place for place, entry in enumerate(entries)}
    return Coded(np.array([places[each] for each in column], np.int32), entries)
