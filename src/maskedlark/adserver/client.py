"""The ad server's own client: select reports, send them, ask, and see tables. Run on the ad server's machine.

It opens the ad server's database, holds the origin's request key and talks to helpers directly. The HTTP
process only takes uploads: nobody outside can spend a budget.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self, overload

from maskedlark.adserver import checking, config, datasets, explanation, freezing, query_arguments, table
from maskedlark.adserver.combining import Answered
from maskedlark.adserver.dataset_store import Dataset, Datasets, DatasetState
from maskedlark.adserver.datasets import QueryableDatasets
from maskedlark.adserver.errors import AnsweredBefore, UnknownRequest
from maskedlark.adserver.explanation import Explained
from maskedlark.adserver.queries import Queries, QuerySpec
from maskedlark.adserver.query_arguments import Grouping, Groupings, Where
from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import Connections, at_once
from maskedlark.adserver.report_store import Reports, Selection, check_used
from maskedlark.adserver.requests import Requests, RequestState, StoredRequest
from maskedlark.adserver.sending import Progress, Sending
from maskedlark.adserver.session import Session
from maskedlark.adserver.spending import BudgetState, spending
from maskedlark.adserver.table import Table
from maskedlark.clock import Clock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.functions.function import Arguments, Function
from maskedlark.functions.sums import Sums
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import HelperIdentity
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.release import messages
from maskedlark.release.errors import UnknownFunction
from maskedlark.storage.engine import Database, open_database
from maskedlark.web import key_file
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import AlreadyFrozen
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import ClosesOnExit

CONFIDENCE = 0.95


class Client(ClosesOnExit):
    """Measures for one origin. Any thread may use it."""

    def __init__(
        self,
        origin: str,
        database: Database,
        parameters: ParameterClient,
        connections: Connections,
        clock: Clock,
        rng: Randomness,
    ) -> None:
        self.origin = origin
        self._database, self._parameters, self._connections = database, parameters, connections
        self._clock, self._rng = clock, rng
        self._datasets = Datasets(database)
        self._reports = Reports(database, clock)
        self._requests = Requests(database)
        self._functions: dict[str, Function] = {Sums.name: Sums()}
        self._queryable = QueryableDatasets(origin, self._datasets, parameters, connections)
        self._receipts = ReceiptStore(database, origin)
        self._queries = Queries(self._requests, self._receipts, connections, clock, rng)

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        """A client configured by an `adserver.toml`."""
        settings, clock = config.read(Path(path)), SystemClock()
        key, parameters = key_file.read(settings.key), settings.parameters(clock)
        # Do not create it: an empty database would look like an ad server without reports.
        database = open_database(settings.database, make=False)
        try:
            check_used(database)
        except BaseException:
            database.close()
            raise
        connections = Connections(settings.origin, key, parameters, clock)
        return cls(settings.origin, database, parameters, connections, clock, SystemRandomness())

    def datasets(self) -> list[Dataset]:
        """Every dataset, the earliest first."""
        return self._datasets.all()

    def refusals(self, name: str) -> dict[str, dict[str, int]]:
        """How many reports of a dataset each helper refused, by error name."""
        return self._datasets.refusals(datasets.known(self._datasets, name).name)

    def select(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        purpose: Purpose = Purpose.AGGREGATE,
        parameters: bytes | None = None,
    ) -> Dataset:
        """Fix the reports received in [start, end), in seconds since 1970, that were made under one document.

        `parameters`: its digest; the newest document by default. `start`: by default, where the previous
        dataset ends. `end`: by default, now.
        """
        known = self._parameters
        document = known.latest(self.origin) if parameters is None else known.by_digest(parameters)
        check = ClockCheck(self._clock, known, self._rng)
        check.compare()
        check.check()  # What a wrong one ends stays ended: later reports could not be selected.
        end = self._clock.now() if end is None else end
        start = self._follows(purpose, document) if start is None else start
        selection = Selection(purpose, document.digest, start, end)
        return datasets.select(self._datasets, self._reports, self._clock, name, selection, document)

    def send(self, name: str, progress: Progress | None = None) -> Dataset:
        """Send a dataset to all helpers, and freeze what all accepted. Calling it again resumes."""
        dataset = datasets.present(self._datasets, name)
        if dataset.state in (DatasetState.FROZEN, DatasetState.EXPIRED):
            return dataset
        sending = self._sending(dataset, progress)
        sending.run()
        checking.check(sending)
        freezing.freeze(sending, self._receipts)
        return datasets.known(self._datasets, name)

    def frozen_to_train(self, names: Sequence[str] | None) -> tuple[Document, tuple[bytes, ...]]:
        """The document and digests of these datasets, or of all that are frozen."""
        return self._queryable.choose(Purpose.TRAIN, names)

    def records(self, document: Document, digests: Sequence[bytes], tag: str) -> int:
        """How many records of a model these datasets have, as the first helper reports."""
        return sum(each.records.get(tag, 0) for each in self.counts(document, digests))

    def counts(self, document: Document, digests: Sequence[bytes]) -> list[messages.RecordCounts]:
        """How many records these datasets have, and how they are stored, as the first helper reports."""
        helper = self._connections.helpers(document)[0]
        return [helper.counts(digest.hex()) for digest in digests]

    def free_slots(self, document: Document, digests: Sequence[bytes]) -> tuple[int, ...]:
        """For each dataset, the first slot that is free at all helpers: a new session names it."""
        helpers = self._connections.helpers(document)
        return tuple(max(each.counts(digest.hex()).free_slot for each in helpers) for digest in digests)

    def session(self, document: Document, body: bytes) -> Session:
        """The training session of an encoded request. Nothing is sent yet."""
        return Session(document, body, self._connections.helpers(document), self._receipts)

    def new_id(self) -> str:
        """A fresh request id."""
        return self._rng.bytes(16).hex()

    def abort(self, name: str, give_up: bool = False) -> list[str]:
        """Abort a dataset that no helper has frozen: its reports are free for another.

        With `give_up`, also one that some helper has frozen and another will not: it is lost, and its reports
        stay taken at the helpers that froze it. Returns those helpers, and those that could not be asked.
        """
        dataset = datasets.present(self._datasets, name)
        if dataset.state in (DatasetState.FROZEN, DatasetState.EXPIRED):
            raise AlreadyFrozen(f"{name} is frozen at every helper: it stays for good")
        sending = self._sending(dataset)
        if give_up:
            return freezing.give_up(sending)
        freezing.abort(sending)
        return []

    def _sending(self, dataset: Dataset, progress: Progress | None = None) -> Sending:
        document = self._parameters.by_digest(dataset.selection.parameters)
        helpers = self._connections.helpers(document)
        return Sending(self._datasets, self._reports, dataset, document, helpers, progress)

    @overload
    def query(
        self,
        values: Sequence[str],
        by: Grouping = ...,
        where: Where | None = ...,
        *,
        datasets: Sequence[str] | None = ...,
        noise: float | None = ...,
        epsilon: float | None = ...,
        confidence: float = ...,
        reuse: bool = ...,
    ) -> Table: ...

    @overload
    def query(
        self,
        values: Sequence[str],
        by: Groupings,
        where: Where | None = ...,
        *,
        datasets: Sequence[str] | None = ...,
        noise: float | None = ...,
        epsilon: float | None = ...,
        confidence: float = ...,
        reuse: bool = ...,
    ) -> list[Table]: ...

    def query(
        self,
        values: Sequence[str],
        by: Grouping | Groupings = (),
        where: Where | None = None,
        *,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        confidence: float = CONFIDENCE,
        reuse: bool = False,
    ) -> Table | list[Table]:
        """Sums of values (`count` is the number of records) by group: a table for every grouping.

        `datasets` by name: by default, all frozen ones of the newest document that has any. `noise` is its
        scale in units of the sensitivity, by default the document's floor; or `epsilon`: as much noise as
        keeps the cost at this. `confidence` is that of the intervals. A query that was answered is charged
        again, for another answer, with a warning (`AnsweredBefore`); with `reuse` the stored answer is
        shown, which costs nothing. An unfinished request of the same query is finished, and not charged
        again.
        """
        spec = self._sums(values, by, where, datasets, noise, epsilon, confidence)
        if not reuse:
            self._warn_if_answered(spec)
        tables = self._tables(spec, self._ask(spec, reuse), confidence)
        return tables if query_arguments.is_several(by) else tables[0]

    def explain(
        self,
        values: Sequence[str],
        by: Grouping | Groupings = (),
        where: Where | None = None,
        *,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        confidence: float = CONFIDENCE,
    ) -> Explained:
        """What the same query would cost, and how accurate it would be. Spends nothing."""
        spec = self._sums(values, by, where, datasets, noise, epsilon, confidence)
        return self._price(spec, confidence)

    def asked_before(
        self,
        values: Sequence[str],
        by: Grouping | Groupings = (),
        where: Where | None = None,
        *,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        confidence: float = CONFIDENCE,
    ) -> StoredRequest | None:
        """The last request of the same query that was answered: `resume` shows its answer, free of charge."""
        spec = self._sums(values, by, where, datasets, noise, epsilon, confidence)
        return self._requests.answered(spec.digest())

    def ask(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        reuse: bool = False,
    ) -> Answered:
        """The answer of any function that the helpers know, as numbers. `table.tables` shows it.

        `reuse`: if the very same was answered before, that answer, which costs nothing more.
        """
        return self._ask(self._spec(function, arguments, datasets, noise, epsilon), reuse)

    def price(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        reuse: bool = False,
    ) -> Explained:
        """What `ask` would cost, and how accurate it would be. Spends nothing.

        `reuse`: of what was begun or answered, the request that is stored: it has its own noise.
        """
        return self._price(self._spec(function, arguments, datasets, noise, epsilon), CONFIDENCE, reuse)

    def is_answered(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
    ) -> bool:
        """Whether `ask` with `reuse` would find the answer here, and charge nothing."""
        spec = self._spec(function, arguments, datasets, noise, epsilon)
        return self._requests.answered(spec.digest()) is not None

    def pending(self) -> list[StoredRequest]:
        """Queries that were begun and not answered, the oldest first."""
        return self._requests.pending()

    def resume(self, request: str, confidence: float = CONFIDENCE) -> list[Table]:
        """Finish a query, or show its answer again: the same bytes, charged once."""
        table.check_confidence(confidence)
        stored = self._requests.get(request)
        asked = messages.Request.decode(stored.body)
        if asked.function not in self._functions:
            raise UnknownFunction(f"request {request} asked {asked.function}: use `ask` with that function")
        document, digests = self._parameters.by_digest(stored.parameters), map(bytes.fromhex, asked.datasets)
        spec = QuerySpec(self._functions[asked.function], asked.arguments, document, tuple(digests))
        with self._queryable.noticing_age(spec.datasets):
            return self._tables(spec, self._queries.finish(stored, spec), confidence)

    def forget(self, request: str) -> None:
        """Abandon a query that cannot be finished. What helpers have charged for it stays charged."""
        if self._requests.get(request).state == RequestState.ANSWERED:
            raise UnknownRequest(f"request {request} was answered: there is nothing to forget")
        self._requests.mark(request, RequestState.FORGOTTEN)

    def receipts(self, helper: str) -> list[SignedReceipt]:
        """The stored receipts that a helper has signed for this origin: a chain without gaps."""
        return self._receipts.receipts(helper)

    def documents(self) -> list[Document]:
        """The documents that frozen datasets are under, oldest first; the newest one where there are none."""
        used = {each.selection.parameters for each in self._datasets.all() if each.digest is not None}
        chain = self._parameters.chain(self.origin)
        return [each for each in chain if each.digest in used] or chain[-1:]

    def budget(self, document: Document | None = None) -> BudgetState:
        """What was spent under a document, by default the newest, and what is left of what.

        Fetches what helpers have signed since, and stores it. Spends nothing.
        """
        document = document or self._parameters.chain(self.origin)[-1]
        at_once([partial(self._receipts.update, helper) for helper in self._connections.helpers(document)])
        return self._budget(document, {})

    def budgets(self) -> list[BudgetState]:
        """The same for each of `documents`. Of helpers that cannot be asked, the stored receipts count."""
        documents = self.documents()
        named = list({each: None for document in documents for each in document.helpers})
        faults = dict(zip(named, at_once([partial(self._fault, each) for each in named]), strict=True))
        return [self._budget(each, faults) for each in documents]

    def _fault(self, helper: HelperIdentity) -> str | None:
        """Fetch a helper's receipts; returns why that is not possible."""
        try:
            self._receipts.update(self._connections.helper(helper))
        except BadReceipt:
            raise  # Of two histories neither tells what was spent.
        except MaskedLarkError as error:
            return str(error)
        return None

    def _budget(self, document: Document, faults: Mapping[HelperIdentity, str | None]) -> BudgetState:
        """By the receipts that are stored here."""
        chain = self._parameters.chain(self.origin)
        later = {each.digest.hex() for each in chain if each.version > document.version}
        names = [each.name for each in document.helpers]
        signed = [[each.claimed() for each in self._receipts.receipts(name)] for name in names]
        spent = [spending(name, document, own, later) for name, own in zip(names, signed, strict=True)]
        missing = {each.name: fault for each in document.helpers if (fault := faults.get(each))}
        return BudgetState(document, tuple(spent), missing)

    def close(self) -> None:
        """Close connections; what is stored stays."""
        self._connections.close()
        self._parameters.close()
        self._database.close()

    def _sums(
        self,
        values: Sequence[str],
        by: Grouping | Groupings,
        where: Where | None,
        datasets: Sequence[str] | None,
        noise: float | None,
        epsilon: float | None,
        confidence: float,
    ) -> QuerySpec:
        """The spec of a query; refuses a confidence that its intervals cannot have."""
        table.check_confidence(confidence)
        arguments = query_arguments.sums(values, by, where)
        return self._spec(Sums(), arguments, datasets, noise, epsilon)

    def _spec(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None,
        noise: float | None,
        epsilon: float | None,
    ) -> QuerySpec:
        document, digests = self._queryable.choose(function.purpose, datasets)
        return QuerySpec(function, arguments, document, digests, noise, epsilon)

    def _tables(self, spec: QuerySpec, answered: Answered, confidence: float) -> list[Table]:
        """The tables of an answer; they say if groups may be too large to be shown."""
        records = sum(each.records or 0 for each in self._datasets.all() if each.digest in spec.datasets)
        most = spec.document.max_records
        tables = table.tables(answered, confidence)
        return [replace(each, max_records=most) for each in tables] if records > most else tables

    def _price(self, spec: QuerySpec, confidence: float, reuse: bool = False) -> Explained:
        stored = self._queries.stored(spec, reuse) if reuse else None
        body = self._queries.request(spec).encode() if stored is None else stored.body
        helpers = self._connections.helpers(spec.document)
        said = at_once([partial(helper.explain, body) for helper in helpers])
        if stored is not None and stored.state == RequestState.ANSWERED:
            said = [explanation.charged_before(each) for each in said]
        return explanation.explained(spec, messages.Request.decode(body).noise, confidence, said)

    def _warn_if_answered(self, spec: QuerySpec) -> None:
        """Before anything is charged. An unfinished request is finished, which is no other answer."""
        before = self._requests.answered(spec.digest())
        if before is not None and all(each.spec_digest != before.spec_digest for each in self.pending()):
            warnings.warn(
                f"the same was asked and answered as request {before.id}: this asks for another answer, and "
                "is charged; with reuse=True the stored one is shown, and costs nothing",
                AnsweredBefore,
                stacklevel=3,
            )

    def _ask(self, spec: QuerySpec, reuse: bool = False) -> Answered:
        self._functions[spec.function.name] = spec.function
        with self._queryable.noticing_age(spec.datasets):
            return self._queries.ask(spec, reuse)

    def _follows(self, purpose: Purpose, document: Document) -> int:
        """The end of the last dataset of this purpose and document."""
        spans = [each.selection for each in self._datasets.all() if each.state is not DatasetState.ABORTED]
        return max((span.end for span in spans if span.kind == (purpose, document.digest)), default=0)
