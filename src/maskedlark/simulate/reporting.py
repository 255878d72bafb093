"""The users' browsers report once; then a dataset per purpose is frozen at every helper.

Reports are kept on disk until they are frozen: after an interruption the same bytes are sent again, and the
ad server counts them once.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.sending import bars
from maskedlark.browser.population import processes
from maskedlark.core.purpose import Purpose
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.simulate.errors import OtherSimulation
from maskedlark.simulate.users import Users
from maskedlark.wire import uploads

DATASETS = {Purpose.AGGREGATE: "measured", Purpose.TRAIN: "trained"}
_SPOOL = "reports"
_MOST = 1000
"""The most reports per batch."""
_MANY = 5000


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
        there = {each.name: each for each in client.datasets()}
        purposes = self.cluster.document.purposes()
        missing = {purpose: DATASETS[purpose] for purpose in purposes if DATASETS[purpose] not in there}
        if missing:
            for purpose in purposes:
                self._upload(purpose)
            self.cluster.select(client, missing)
        frozen = {purpose: self._frozen(client, DATASETS[purpose]) for purpose in purposes}
        shutil.rmtree(self.cluster.folder / _SPOOL, ignore_errors=True)
        return frozen

    def _upload(self, purpose: Purpose) -> None:
        bodies = self._made(purpose)
        with bars(self.progress, transient=True) as progress:
            for sent, body in enumerate(bodies, start=1):
                self.cluster.upload([uploads.decode_batch(body.read_bytes(), _MOST, 1 << 30)])
                progress("the ad server takes reports", sent, len(bodies))

    def _made(self, purpose: Purpose) -> list[Path]:
        """The files with all reports of a purpose, made if there are none yet."""
        whole = self.cluster.folder / _SPOOL / purpose.value
        if not whole.exists():
            part = whole.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            for place, batch in enumerate(self._batches(purpose)):
                (part / f"{place:06}").write_bytes(uploads.encode_batch(batch))
            part.rename(whole)  # Only a complete folder is sent, so that nobody reports twice.
        return sorted(whole.iterdir())

    def _batches(self, purpose: Purpose) -> Iterator[Sequence[bytes]]:
        # A new interpreter takes a second to start, in which one process makes thousands of reports.
        users = self.users
        several = self.processes > 1 and users.size >= _MANY
        with processes(self.processes) if several else nullcontext() as pool:
            made = self.cluster.browsers(pool, self.progress)
            if purpose is Purpose.AGGREGATE:
                yield from made.measure([*users.keys.values()], [*users.values.values()])
            else:
                assert users.features is not None, "a model has features"
                assert users.label is not None
                yield from made.train(self.tag, users.features, [users.label])

    def _frozen(self, client: Client, name: str) -> Dataset:
        dataset = next(each for each in client.datasets() if each.name == name)
        if dataset.state is DatasetState.FROZEN:
            return dataset
        if dataset.state is not DatasetState.SELECTED:  # It cannot be queried.
            raise OtherSimulation(f"dataset {name} is {dataset.state}: give another folder")
        with bars(self.progress, transient=True) as progress:
            return client.send(name, progress)
