"""A helper with all its parts: what the endpoints do, without HTTP. All of it blocks: run it in threads."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx

from maskedlark.clock import Clock
from maskedlark.compute.device import check_device
from maskedlark.compute.settings import open_engine
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError, NotDeclared
from maskedlark.functions import Functions
from maskedlark.helper import explanation
from maskedlark.helper.anchor import open_anchor
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.config import Config
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.dataset_files import DatasetFiles, SealedFiles, key_of
from maskedlark.helper.datasets import Datasets
from maskedlark.helper.errors import KeysBehind
from maskedlark.helper.folder_id import check_folder
from maskedlark.helper.folder_lock import only_process
from maskedlark.helper.keyring import DAY_S, Keyring
from maskedlark.helper.ledger_database import mark_run, open_ledger_database
from maskedlark.helper.request_keys import RequestKeys
from maskedlark.helper.seeds import Seeds
from maskedlark.helper.shards import FrozenDataset
from maskedlark.ledger.ledger import PAGE, Ledger
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import ReceiptPage, RecordCounts, Request, SessionRequest
from maskedlark.release.release import Release
from maskedlark.storage import disk, schema
from maskedlark.storage.engine import is_server
from maskedlark.web import pages
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import DocumentOfAnother, NotNamed
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.request_signature import RequestVerifier
from maskedlark.wire.datasets import NewDataset
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.signatures import VerifyingKey

_log = logging.getLogger(__name__)


class Service:
    """One helper. Threads may share it."""

    def __init__(
        self, config: Config, clock: Clock, rng: Randomness, http: httpx.Client | None, stack: ExitStack
    ) -> None:
        self.config, self.clock = config, clock
        self.keyring = Keyring(config.keys_folder, config.name, config.keep_days * DAY_S)
        self.keyring.current(clock.now())  # First: without keys there is nothing to serve.
        functions = Functions(config.functions)
        # Over a server several processes may share the folder; an SQLite file has one.
        stack.enter_context(only_process(config.folder, shared=is_server(config.database_url)))
        self.database = stack.enter_context(open_ledger_database(config, wait=True))
        if is_server(config.database_url):
            check_folder(config.folder, self.database)
        anchor = stack.enter_context(open_anchor(config, self.database, wait=True))
        self.ledger = Ledger(self.database, anchor, self.keyring, clock, rng)
        self.ledger.check()
        owner = f"{config.name} {self.keyring.identity.public.hex()}"
        self.engine = stack.enter_context(closing(open_engine(config.own_compute, owner)))
        check_device(self.engine, config.compute.device)
        place = config.columns_folder, self.database, config.name
        context = DatasetContext(*place, clock, self._storage())
        mark_run(config)
        context.check_workers(self.engine)
        sealing = self._opening_keys, self._sealing_keys
        self.check_keys = CheckKeys(self.database, self.ledger, self.keyring, *sealing, clock)
        opening, cut = (self._opening_keys, self.check_keys), (config.compute.shard_bytes, rng)
        self.datasets = Datasets(context, self.ledger, *opening, self.engine, *cut)
        service, key = config.parameter_service, config.service_key_public
        self.parameters = stack.enter_context(
            ParameterClient(service, key, config.parameters_folder, clock, config.pinned, http=http)
        )
        self._published: KeyConfiguration | None = None
        self.clock_check = ClockCheck(clock, self.parameters, rng)
        self.seeds = Seeds(self.database, self.keyring, *sealing, clock, rng)
        kept = KeptAnswers(config.folder / "answers")
        self.releases = Release(
            config.name,
            self.ledger,
            functions,
            self.seeds.of,
            self.find,
            kept,
            self.engine,
            rng,
            config.compute.device,
        )

    def request_verifier(self) -> RequestVerifier:
        """The allowed callers: the pinned origins, each with the key that it declares now."""
        config = self.config
        keys = RequestKeys(config.origins, self.parameters.chain, config.fresh_s, self.clock)
        return RequestVerifier(config.name, keys.key_of, self.clock)

    def check(self) -> None:
        """Return if disks, database, ledger, anchor and keys work; the parameter service need not."""
        for folder in (self.config.folder, self.config.columns_folder, self.config.anchor_folder):
            disk.check(folder)
        schema.check(self.database)
        self.ledger.check()
        self.clock_check.check()
        try:
            self.keyring.check(self.clock.now(), self._published)
        except KeysBehind:
            self.compare_keys()  # Perhaps no longer.
            self.keyring.check(self.clock.now(), self._published)

    def compare_keys(self) -> None:
        """Learn which keys of this helper are published, at the start and every minute, if anyone says."""
        with suppress(MaskedLarkError, OSError):
            self._published = self.parameters.keys(self.config.name, self.keyring.identity)

    @property
    def building(self) -> Datasets:
        """Its datasets, unless its clock is contradicted: what a wrong one refuses would stay refused."""
        self.clock_check.check()
        return self.datasets

    def open_dataset(self, origin: str, name: str, body: bytes) -> bytes:
        """Begin a dataset under a document of the caller's that this helper accepts."""
        new = NewDataset.decode(body)
        document = self._document(origin, bytes.fromhex(new.parameters))
        purpose = Purpose(new.purpose)
        if purpose not in document.purposes():
            raise NotDeclared(f"version {document.version} of {origin} declares nothing to {purpose.value}")
        return self.building.open(document, name, purpose, bytes.fromhex(new.attempt)).encode()

    def release(self, origin: str, body: bytes) -> bytes:
        """A share of the answer to a query. The same query gets the same bytes."""
        return self.releases.answer(origin, body, Request.decode(body)).encode()

    def explain(self, origin: str, body: bytes) -> bytes:
        """What a query would cost and how exact it would be. Charges nothing."""
        return explanation.of(self.releases.explain(origin, Request.decode(body))).encode()

    def open_session(self, origin: str, body: bytes) -> bytes:
        """Open a training session; returns its receipt. Idempotent."""
        return self.releases.open_session(origin, body, SessionRequest.decode(body)).encode()

    def make_seed(self, origin: str, dataset: bytes) -> bytes:
        """The seed that a dataset's helpers share, sealed to each."""
        return self.seeds.make(self.find(origin, dataset).document, dataset)

    def accept_seed(self, origin: str, dataset: bytes, message: bytes) -> None:
        """Keep the first helper's seed."""
        self.seeds.accept(self.find(origin, dataset).document, dataset, message)

    def make_check_key(self, origin: str, parameters: bytes) -> bytes:
        """The key that a document's reports are checked with, sealed to each helper."""
        return self.check_keys.make(self._checked(origin, parameters))

    def accept_check_key(self, origin: str, parameters: bytes, message: bytes) -> None:
        """Pin the first helper's check key."""
        self.check_keys.accept(self._checked(origin, parameters), message)

    def records(self, origin: str, dataset: bytes) -> bytes:
        """How many records of each model a frozen dataset has, and the first free slot."""
        named = self.find(origin, dataset)
        records = {tag: named.size(tag) for tag in named.document.declared_models}
        free_slot = self.releases.free_slot(origin, dataset)
        return RecordCounts(
            records=records,
            shards=len(named.contents.shards),
            stored_bytes={tag: named.stored_bytes(tag) for tag in records},
            free_slot=free_slot,
        ).encode()

    def receipts(self, origin: str, after: int) -> bytes:
        """The receipts after this number, as many as fit into a page, and whether more follow."""
        receipts = self.ledger.receipts(origin, after)
        # The last of a full ledger page is left for the next one, which shows that there is a next one.
        count = pages.fitting(len(each.encode()) for each in receipts[: PAGE - 1])
        return ReceiptPage(receipts=tuple(receipts[:count]), more=count < len(receipts)).encode()

    def find(self, origin: str, digest: bytes) -> FrozenDataset:
        """A dataset of the caller's, under a document that passes today's policy."""
        dataset = self.datasets.find(origin, digest)
        self._check(origin, dataset.document)
        return dataset

    def forget(self, every_s: float = 0.0) -> None:
        """Delete expired datasets and keys, by a confirmed clock. Run at the start, and every minute."""
        if not self.clock_check.is_due(every_s):
            return
        self.datasets.forget()
        # What could unmask stored answers, or remove their noise, is deleted with the datasets.
        now = self.clock.now()
        self.seeds.expire()
        self.ledger.forget(now)
        self.releases.forget(now)
        if gone := self.keyring.forget(now):
            _log.info("%d old keys were deleted", gone)
        self.database.scrub()
        self.datasets.tell_workers()

    def _storage(self) -> DatasetFiles | None:
        """Where datasets are, if not on the helper's own disk: sealed, wherever that is."""
        url = self.config.compute.storage
        return None if url is None else SealedFiles(url, key_of(self.keyring.check_secret))

    def _document(self, origin: str, parameters: bytes) -> Document:
        """A document of the caller's that this helper accepts."""
        document = self.parameters.by_digest(parameters)
        self._check(origin, document)
        return document

    def _checked(self, origin: str, parameters: bytes) -> Document:
        document = self._document(origin, parameters)
        if not document.checked:
            raise NotDeclared(f"version {document.version} of {origin} declares no checks")
        return document

    def _check(self, origin: str, document: Document) -> None:
        """Refuse a document that is not the caller's, not within our policy, or not for us."""
        if document.origin != origin:
            raise DocumentOfAnother(f"the document is of another origin than {origin}, which signed this")
        name, identity = self.config.name, self.keyring.identity.public.hex()
        if (name, identity) not in [(helper.name, helper.identity) for helper in document.helpers]:
            raise NotNamed(
                f"version {document.version} of {origin} does not name {name} with the identity {identity}"
            )
        self.config.policy.check(document)

    def _opening_keys(self) -> Mapping[bytes, OpeningKey]:
        return self.keyring.opening_keys(self.clock.now())

    def _sealing_keys(self, document: Document) -> dict[str, SealingKey]:
        """The keys to seal a shared seed to: the current keys of a document's helpers."""
        ours, now = self.config.name, self.clock.now()
        others = {each.name: each.identity for each in document.helpers if each.name != ours}
        theirs = {
            name: self.parameters.keys(name, VerifyingKey(bytes.fromhex(identity))).current(now)
            for name, identity in others.items()
        }
        return {ours: self.keyring.sealing_key(now), **theirs}


@contextmanager
def open_service(
    config: Config, clock: Clock, rng: Randomness, http: httpx.Client | None = None
) -> Iterator[Service]:
    """A helper that is ready to answer. Refuses a ledger that lacks receipts. Run at the start."""
    with ExitStack() as stack:
        service = Service(config, clock, rng, http, stack)
        service.compare_keys()
        service.forget()
        yield service
