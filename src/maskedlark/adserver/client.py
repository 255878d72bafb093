"""The ad server's own hands: freeze reports, send them, ask, and see tables. Run on the ad server's machine.

It opens the ad server's database, holds the origin's signing key and talks to helpers directly. The HTTP
process takes uploads only: nobody outside can spend a budget.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, overload

import httpx

from maskedlark import functions
from maskedlark.adserver import config, datasets, explained, question, sealing, table
from maskedlark.adserver.asking import Asking, Wish
from maskedlark.adserver.book import Book
from maskedlark.adserver.combining import Answered
from maskedlark.adserver.errors import NotSealed, UnknownRequest
from maskedlark.adserver.explained import Explained
from maskedlark.adserver.question import Grouping, Groupings, Where
from maskedlark.adserver.remote_helper import Connections, Retries
from maskedlark.adserver.requests import Course, Kept, Requests
from maskedlark.adserver.sending import Progress, Sending, at_once, silent
from maskedlark.adserver.table import Table
from maskedlark.adserver.trusted import TrustedParameters
from maskedlark.clock import Clock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired
from maskedlark.functions.sums import Sums
from maskedlark.privacy import messages
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadArguments, MixedDatasets, UnknownFunction
from maskedlark.privacy.function import Arguments, Function
from maskedlark.privacy.messages import MOST_DATASETS
from maskedlark.privacy.receipt import SignedReceipt
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.storage.datasets import Dataset, Datasets, Standing
from maskedlark.storage.engine import Database, open_database
from maskedlark.storage.reports import Reports, Selection, check_used
from maskedlark.web import key_file
from maskedlark.web.errors import AlreadySealed, UnknownDataset
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.signatures import SigningKey

CONFIDENCE = 0.95
_LOG = logging.getLogger(__name__)


class Client:
    """Measuring for one origin. Any thread may use it."""

    def __init__(
        self,
        origin: str,
        database: Database,
        key: SigningKey,
        parameters: ParameterClient,
        clock: Clock,
        rng: Randomness,
        http: httpx.Client | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.origin = origin
        self._database = database
        self._parameters = parameters
        self._clock = clock
        self._http = http or httpx.Client(follow_redirects=False)
        self._datasets = Datasets(database)
        self._reports = Reports(database, clock)
        self._requests = Requests(database)
        self._functions: dict[str, Function] = functions.load()
        self._connections = Connections(origin, key, parameters, clock, self._http, retries or Retries())
        self._book = Book(database, origin)
        self._asking = Asking(self._requests, self._book, self._connections, clock, rng)

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        """A client by its `adserver.toml`."""
        found, clock = config.read(Path(path)), SystemClock()
        key = key_file.read(Path(found.key))
        service_key, pins = (
            key_file.public(found.service_key),
            {found.origin: key_file.public(found.origin_key)},
        )
        parameters = TrustedParameters(found.parameter_service, service_key, Path(found.cache), clock, pins)
        # Not made here: an empty one would look like an ad server without reports.
        database = open_database(found.database, make=False)
        try:
            check_used(database)
        except BaseException:
            database.close()
            raise
        return cls(found.origin, database, key, parameters, clock, SystemRandomness())

    def datasets(self) -> list[Dataset]:
        """Every dataset, the earliest first."""
        return self._datasets.all()

    def refusals(self, name: str) -> dict[str, dict[str, int]]:
        """How many reports of a dataset each helper refused, by the error's name."""
        return self._datasets.refusals(datasets.known(self._datasets, name).name)

    def freeze(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        purpose: Purpose = Purpose.AGGREGATE,
        parameters: bytes | None = None,
    ) -> Dataset:
        """Fix the reports that were received from start until end: seconds since 1970, the end left out.

        Made under the newest document, unless the digest of another is given. Without a start it follows the
        dataset before it; without an end it ends now.
        """
        document = self._document(parameters)
        end = self._clock.now() if end is None else end
        start = self._follows(purpose, document) if start is None else start
        selection = Selection(purpose, document.digest, start, end)
        parts = datasets.parts_of(document, selection)
        return datasets.freeze(self._datasets, self._reports, self._clock, name, selection, parts)

    def send(self, name: str, progress: Progress = silent) -> Dataset:
        """Send a dataset to all helpers, agree on what all accepted, and seal it. Again, it carries on."""
        found = self._present(name)
        if found.state in (Standing.SEALED, Standing.EXPIRED):
            return found
        document = self._parameters.by_digest(found.selection.parameters)
        helpers = self._connections.helpers(document)
        Sending(self._datasets, self._reports, found, helpers, progress).run()
        sealing.seal(self._datasets, self._reports, self._book, found, document, helpers)
        return datasets.known(self._datasets, name)

    def abort(self, name: str, give_up: bool = False) -> list[str]:
        """Take a dataset back that is not sealed anywhere: its reports are free for another.

        With `give_up`, also one that some helper has sealed and another will not: it is lost, and its reports
        stay taken at those who have sealed it. Returns who they are, and who could not be asked.
        """
        found = self._present(name)
        if found.state in (Standing.SEALED, Standing.EXPIRED):
            raise AlreadySealed(f"{name} is sealed at every helper: it stays for good")
        helpers = self._connections.helpers(self._parameters.by_digest(found.selection.parameters))
        if give_up:
            return sealing.give_up(self._datasets, found, helpers)
        sealing.abort(self._datasets, found, helpers)
        return []

    @overload
    def query(
        self,
        values: Sequence[str],
        by: Grouping = ...,
        where: Where | None = ...,
        datasets: Sequence[str] | None = ...,
        noise: float | None = ...,
        epsilon: float | None = ...,
        confidence: float = ...,
    ) -> Table: ...

    @overload
    def query(
        self,
        values: Sequence[str],
        by: Groupings,
        where: Where | None = ...,
        datasets: Sequence[str] | None = ...,
        noise: float | None = ...,
        epsilon: float | None = ...,
        confidence: float = ...,
    ) -> list[Table]: ...

    def query(
        self,
        values: Sequence[str],
        by: Grouping | Groupings = (),
        where: Where | None = None,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        confidence: float = CONFIDENCE,
    ) -> Table | list[Table]:
        """Sums of values (`count` is the number of records) by group: a table for every grouping.

        Over the datasets named, or all that are sealed. The noise is the document's floor, or what is given,
        or as much as keeps the cost at `epsilon`. What was begun and not finished is finished, not charged
        again.
        """
        table.check_confidence(confidence)
        answered = self.ask(Sums(), question.sums(values, by, where), datasets, noise, epsilon)
        found = table.tables(answered, confidence)
        return found if question.is_several(by) else found[0]

    def explain(
        self,
        values: Sequence[str],
        by: Grouping | Groupings = (),
        where: Where | None = None,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
        confidence: float = CONFIDENCE,
    ) -> Explained:
        """What the same query would cost, and how exact it would be. Spends nothing."""
        table.check_confidence(confidence)
        wish = self._wish(Sums(), question.sums(values, by, where), datasets, noise, epsilon)
        wish.question()
        request = self._asking.request(wish)
        helpers = self._connections.helpers(wish.document)
        said = at_once([partial(helper.explain, request.encode()) for helper in helpers])
        found = {
            helper.name: explained.decode(helper.name, data)
            for helper, data in zip(helpers, said, strict=True)
        }
        return explained.explained(wish, request.noise, confidence, found)

    def ask(
        self,
        function: Function,
        arguments: Arguments,
        datasets: Sequence[str] | None = None,
        noise: float | None = None,
        epsilon: float | None = None,
    ) -> Answered:
        """The answer of any function that the helpers know, as numbers. `table.tables` shows it."""
        self._functions[function.name] = function
        wish = self._wish(function, arguments, datasets, noise, epsilon)
        with self._noticing_age(wish.datasets):
            return self._asking.ask(wish)

    def pending(self) -> list[Kept]:
        """Questions that were begun and not answered, the oldest first."""
        return self._requests.pending()

    def resume(self, request: str, confidence: float = CONFIDENCE) -> list[Table]:
        """Finish a question, or see its answer again: the same bytes, charged once."""
        table.check_confidence(confidence)
        kept = self._request(request)
        asked = messages.decode_request(kept.body)
        if asked.function not in self._functions:
            raise UnknownFunction(
                f"request {request} asked {asked.function}: use `ask` with that function first"
            )
        document = self._parameters.by_digest(kept.parameters)
        with self._noticing_age([bytes.fromhex(each) for each in asked.datasets]):
            answered = self._asking.finish(kept, self._functions[asked.function], document)
        return table.tables(answered, confidence)

    def forget(self, request: str) -> None:
        """Let go of a question that cannot be finished. What helpers have charged for it stays charged."""
        if self._request(request).state is Course.ANSWERED:
            raise UnknownRequest(f"request {request} was answered: there is nothing to forget")
        self._requests.close(request, Course.FORGOTTEN)

    def receipts(self, helper: str) -> list[SignedReceipt]:
        """All that a helper has signed for this origin, as far as it is kept here: a chain without gaps."""
        return self._book.receipts(helper)

    def close(self) -> None:
        """Let go of connections; what is stored stays."""
        self._http.close()
        self._parameters.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _document(self, digest: bytes | None) -> Document:
        if digest is None:
            return self._parameters.latest(self.origin)
        return self._parameters.by_digest(digest)

    def _follows(self, purpose: Purpose, document: Document) -> int:
        """The end of the last dataset of this purpose and document."""
        spans = [each.selection for each in self._datasets.all() if each.state is not Standing.ABORTED]
        same = [span.end for span in spans if (span.purpose, span.parameters) == (purpose, document.digest)]
        return max(same, default=0)

    def _request(self, name: str) -> Kept:
        kept = self._requests.get(name)
        if kept is None:
            raise UnknownRequest(f"no request {name!r} was asked from this database")
        return kept

    @contextmanager
    def _noticing_age(self, digests: Sequence[bytes]) -> Iterator[None]:
        """If a helper says that something has expired, find out what: it is left out from then on."""
        try:
            yield
        except Expired as error:
            asked = [each for each in self._datasets.all() if each.digest in digests]
            gone = [each.name for each in asked if each.state is Standing.SEALED and self._has_expired(each)]
            if not gone:
                raise
            for name in gone:
                self._datasets.expire(name)
            raise Expired(
                f"{error} ({', '.join(gone)}). It is marked so here, and left out of questions that name no "
                "dataset: ask again"
            ) from None

    def _has_expired(self, dataset: Dataset) -> bool:
        document = self._parameters.by_digest(dataset.selection.parameters)
        helpers = self._connections.helpers(document)
        # One is enough: a question needs all of them.
        return any(
            state.state == "expired"
            for state in at_once([partial(each.state, dataset.name) for each in helpers])
        )

    def _present(self, name: str) -> Dataset:
        found = datasets.known(self._datasets, name)
        if found.state is Standing.ABORTED:
            raise UnknownDataset(f"{name} was aborted: freeze it again")
        if found.state is Standing.LOST:
            raise UnknownDataset(f"{name} was given up: its reports are lost, freeze later ones")
        return found

    def _wish(
        self,
        function: Function,
        arguments: Arguments,
        names: Sequence[str] | None,
        noise: float | None,
        epsilon: float | None,
    ) -> Wish:
        chosen = self._sealed(function.purpose) if names is None else self._named(names)
        if len(chosen) > MOST_DATASETS:
            raise BadArguments(
                f"{len(chosen)} datasets, and one question is over at most {MOST_DATASETS}: name fewer"
            )
        digests = tuple(sorted(each.digest for each in chosen if each.digest is not None))
        document = self._parameters.by_digest(chosen[0].selection.parameters)
        return Wish(function, arguments, document, digests, noise, epsilon)

    def _named(self, names: Sequence[str]) -> list[Dataset]:
        found = [datasets.sealed(self._datasets, name) for name in dict.fromkeys(names)]
        if not found:
            raise NotSealed("name at least one dataset, or none for all that are sealed")
        if len({(each.selection.purpose, each.selection.parameters) for each in found}) > 1:
            raise MixedDatasets("these datasets are of several purposes or documents: ask for each apart")
        return found

    def _sealed(self, purpose: Purpose) -> list[Dataset]:
        """All sealed ones of a purpose, of the newest document that has any."""
        found = [each for each in self._datasets.all() if each.selection.purpose is purpose]
        for document in reversed(self._parameters.chain(self.origin)):
            same = [each for each in found if each.selection.parameters == document.digest]
            if sealed := [each for each in same if each.state is Standing.SEALED]:
                _mention_expired(same)
                return sealed
        raise NotSealed(f"no dataset to {purpose} is sealed yet: freeze and send one first")


def _mention_expired(found: Sequence[Dataset]) -> None:
    if names := [each.name for each in found if each.state is Standing.EXPIRED]:
        _LOG.warning("left out, because their reports have expired: %s", ", ".join(names))
