"""The ad server's own hands: freeze reports, send them, ask, and see tables. Run on the ad server's machine.

It opens the ad server's database, holds the origin's signing key and talks to helpers directly. The HTTP
process takes uploads only: nobody outside can spend a budget.
"""

from collections.abc import Sequence
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
from maskedlark.adserver.requests import Kept, Requests
from maskedlark.adserver.sending import Progress, Sending, at_once, silent
from maskedlark.adserver.table import Table
from maskedlark.clock import Clock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.functions.sums import Sums
from maskedlark.privacy import messages
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import MixedDatasets, UnknownFunction
from maskedlark.privacy.function import Arguments, Function
from maskedlark.privacy.receipt import SignedReceipt
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.storage.datasets import Dataset, Datasets, Standing
from maskedlark.storage.engine import Database, open_database
from maskedlark.storage.reports import Reports, Selection
from maskedlark.web import key_file
from maskedlark.web.errors import AlreadySealed, UnknownDataset
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.signatures import SigningKey

CONFIDENCE = 0.95


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
        parameters = ParameterClient(found.parameter_service, service_key, Path(found.cache), clock, pins)
        database = open_database(found.database)
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
        if found.state is Standing.SEALED:
            return found
        document = self._parameters.by_digest(found.selection.parameters)
        helpers = self._connections.helpers(document)
        Sending(self._datasets, self._reports, found, helpers, progress).run()
        sealing.seal(self._datasets, self._book, found, document, helpers)
        return datasets.known(self._datasets, name)

    def abort(self, name: str) -> None:
        """Take a dataset back that is not sealed anywhere: its reports are free for another."""
        found = self._present(name)
        if found.state is Standing.SEALED:
            raise AlreadySealed(f"{name} is sealed at every helper: it stays for good")
        document = self._parameters.by_digest(found.selection.parameters)
        sealing.abort(self._datasets, found, self._connections.helpers(document))

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
        return self._asking.ask(self._wish(function, arguments, datasets, noise, epsilon))

    def pending(self) -> list[Kept]:
        """Questions that were begun and not answered, the oldest first."""
        return self._requests.pending()

    def resume(self, request: str, confidence: float = CONFIDENCE) -> list[Table]:
        """Finish a question, or see its answer again: the same bytes, charged once."""
        kept = self._requests.get(request)
        if kept is None:
            raise UnknownRequest(f"no request {request!r} was asked from this database")
        name = messages.decode_request(kept.body).function
        if name not in self._functions:
            raise UnknownFunction(f"request {request} asked {name}: use `ask` with that function first")
        document = self._parameters.by_digest(kept.parameters)
        return table.tables(self._asking.finish(kept, self._functions[name], document), confidence)

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

    def _present(self, name: str) -> Dataset:
        found = datasets.known(self._datasets, name)
        if found.state is Standing.ABORTED:
            raise UnknownDataset(f"{name} was aborted: freeze it again")
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
        digests = tuple(each.digest for each in chosen if each.digest is not None)
        document = self._parameters.by_digest(chosen[0].selection.parameters)
        return Wish(function, arguments, document, digests, noise, epsilon)

    def _named(self, names: Sequence[str]) -> list[Dataset]:
        found = [datasets.sealed(self._datasets, name) for name in names]
        if not found:
            raise NotSealed("name at least one dataset, or none for all that are sealed")
        if len({(each.selection.purpose, each.selection.parameters) for each in found}) > 1:
            raise MixedDatasets("these datasets are of several purposes or documents: ask for each apart")
        return found

    def _sealed(self, purpose: Purpose) -> list[Dataset]:
        """All sealed ones of a purpose, of the newest document that has any."""
        found = [each for each in self._datasets.all() if each.state is Standing.SEALED]
        for document in reversed(self._parameters.chain(self.origin)):
            wanted = (purpose, document.digest)
            if same := [
                each for each in found if (each.selection.purpose, each.selection.parameters) == wanted
            ]:
                return same
        raise NotSealed(f"no dataset to {purpose} is sealed yet: freeze and send one first")
