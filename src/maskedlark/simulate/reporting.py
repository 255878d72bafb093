"""The users' browsers report once; then a dataset per purpose is frozen at every helper.

Reports are kept on disk until they are frozen: after an interruption the same bytes are sent again, and the
ad server counts them once.
"""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.remote_helper import few_at_once
from maskedlark.adserver.sending import Progress, bars
from maskedlark.browser.population import CHUNK, processes
from maskedlark.core.purpose import Purpose
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.simulate.errors import OtherSimulation
from maskedlark.simulate.users import Users
from maskedlark.wire import uploads
from maskedlark.wire.report import MAX_BYTES

DATASETS = {Purpose.AGGREGATE: "measured", Purpose.TRAIN: "trained"}
_SPOOL = "reports"
_AT_ONCE, _MAX_BODY = 4, 2 << 20
"""The most files, of CHUNK reports each, and bytes in one upload: no more than an ad server takes, and many,
since a commit of more costs it less for each."""
_UPLOADS = 2
"""At a time: one is read here while the ad server stores the other."""
_MANY = 5000
T = TypeVar("T")
_STOPPED = "stopped while reports were made, uploaded or sent: the same again carries on"


@dataclass(frozen=True)
class Reporting:
    """The browsers of a table, reporting to one cluster."""

    cluster: LocalCluster
    users: Users
    tag: str
    processes: int = 1
    progress: bool = False

    def run(self, client: Client) -> dict[Purpose, Dataset]:
        """Upload and freeze. Idempotent: calling it again resumes."""
        purposes = self.cluster.document.purposes()
        missing = {DATASETS[each] for each in purposes} - {each.name for each in client.datasets()}
        stopped, failures = threading.Event(), list[BaseException]()
        begin = partial(_begin, stopped, failures)
        with (
            bars(self.progress, transient=True) as shown,
            self._pool() as pool,
            _thread("making", stopped) as making,
            _thread("uploading", stopped) as uploading,
            _thread("sending", stopped, len(purposes)) as sending,
        ):
            progress = _one_at_a_time(shown)
            # The reports of one purpose are made while those of the one before are uploaded. Helpers are sent
            # a dataset when all reports are made: they are busy on all cores to the end, while the other is
            # uploaded, selected and frozen.
            made, uploaded = {}, {}
            for each in purposes:
                if DATASETS[each] in missing:
                    made[each] = begin(making, partial(self._made, each, pool, progress, stopped))
                    uploaded[each] = begin(uploading, partial(self._upload, made[each], progress, stopped))
            if pool is not None:
                making.submit(pool.shutdown)  # After the last: its processes are not kept while that is sent.
            sent = {}
            for each in purposes:
                all_made = [*made.values()]
                work = partial(self._sent, client, each, uploaded.get(each), all_made, progress, stopped)
                sent[each] = begin(sending, work)
            wait(sent.values(), return_when=FIRST_EXCEPTION)
            if failures:  # The first, and not what was stopped because of it.
                raise failures[0]
        shutil.rmtree(self.cluster.folder / _SPOOL, ignore_errors=True)
        return {purpose: future.result() for purpose, future in sent.items()}

    def _pool(self) -> AbstractContextManager[Executor | None]:
        """Processes that make reports, started when the first is made, and used for every purpose."""
        # They take a moment to start, in which one process makes thousands of reports.
        several = self.processes > 1 and self.users.size >= _MANY
        return processes(self.processes) if several else nullcontext()

    def _sent(
        self,
        client: Client,
        purpose: Purpose,
        uploaded: Future[None] | None,
        made: Sequence[Future[list[Path]]],
        progress: Progress,
        stopped: threading.Event,
    ) -> Dataset:
        """A dataset, frozen at every helper: of these reports once they are there, or as it was selected."""
        name = DATASETS[purpose]
        if uploaded is not None:
            uploaded.result()
            self.cluster.select(client, {purpose: name})
        for each in made:
            each.result()

        def tell(what: str, done: int, of: int) -> None:
            if stopped.is_set():
                raise OtherSimulation(_STOPPED)
            progress(f"{name}: {what}", done, of)

        return self._frozen(client, name, tell)

    def _upload(self, made: Future[list[Path]], progress: Progress, stopped: threading.Event) -> None:
        """Upload the reports of a purpose, once all are made."""
        bodies, sent = [*_together(made.result())], itertools.count(1)

        def upload(body: Sequence[Path]) -> None:
            if stopped.is_set():
                raise OtherSimulation(_STOPPED)
            read = (uploads.decode_batch(each.read_bytes(), CHUNK, MAX_BYTES) for each in body)
            self.cluster.upload([[report for reports in read for report in reports]])
            progress("the ad server takes reports", next(sent), len(bodies))

        few_at_once([partial(upload, body) for body in bodies], _UPLOADS)

    def _made(
        self, purpose: Purpose, pool: Executor | None, progress: Progress, stopped: threading.Event
    ) -> list[Path]:
        """The files with all reports of a purpose, made if there are none yet."""
        whole = self.cluster.folder / _SPOOL / purpose.value
        if not whole.exists():
            part = whole.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            for place, batch in enumerate(self._batches(purpose, pool)):
                if stopped.is_set():
                    if pool is not None:
                        pool.shutdown(cancel_futures=True)  # Else all chunks are made first.
                    raise OtherSimulation(_STOPPED)
                (part / f"{place:06}").write_bytes(uploads.encode_batch(batch))
                progress("browsers make reports", min((place + 1) * CHUNK, self.users.size), self.users.size)
            part.rename(whole)  # Only a complete folder is sent, so that nobody reports twice.
        return sorted(whole.iterdir())

    def _batches(self, purpose: Purpose, pool: Executor | None) -> Iterator[Sequence[bytes]]:
        users, browsers = self.users, self.cluster.browsers(pool)
        if purpose is Purpose.AGGREGATE:
            return browsers.measure([*users.keys.values()], [*users.values.values()])
        assert users.features is not None, "a model has features"
        assert users.label is not None
        return browsers.train(self.tag, users.features, [users.label])

    def _frozen(self, client: Client, name: str, progress: Progress) -> Dataset:
        dataset = next(each for each in client.datasets() if each.name == name)
        if dataset.state is DatasetState.FROZEN:
            return dataset
        if dataset.state is not DatasetState.SELECTED:  # It cannot be queried.
            raise OtherSimulation(f"dataset {name} is {dataset.state}: give another folder")
        return client.send(name, progress)


def _begin(
    stopped: threading.Event, failures: list[BaseException], thread: Executor, work: Callable[[], T]
) -> Future[T]:
    """Have a thread do some of the work. If it fails, no other begins any more."""

    def run() -> T:
        if stopped.is_set():
            raise OtherSimulation(_STOPPED)
        try:
            return work()
        except BaseException as error:
            failures.append(error)
            stopped.set()
            raise

    return thread.submit(run)


def _together(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Files that go into one upload."""
    held, size = list[Path](), 0
    for file in files:
        more = file.stat().st_size
        if held and (len(held) == _AT_ONCE or size + more > _MAX_BODY):
            yield held
            held, size = [], 0
        held.append(file)
        size += more
    if held:
        yield held


@contextmanager
def _thread(name: str, stopped: threading.Event, count: int = 1) -> Iterator[ThreadPoolExecutor]:
    """A thread, or several, that makes, uploads or sends reports. After an error no more are made."""
    with ThreadPoolExecutor(count, name) as thread:
        try:
            yield thread
        except BaseException:
            stopped.set()
            raise


def _one_at_a_time(shown: Progress) -> Progress:
    """Reports are made, uploaded and sent by a thread each."""
    telling = threading.Lock()

    def progress(what: str, done: int, of: int) -> None:
        with telling:
            shown(what, done, of)

    return progress
