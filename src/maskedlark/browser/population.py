"""A table as the reports of as many browsers, made at once without store and clock. Run by simulations.

All draws are made for the whole table; sealing, one call per payload, is distributed over processes.
"""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, resource_tracker

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.progress import Progress

from maskedlark.browser.reports import draw_waits, with_noise
from maskedlark.clock import hour_of
from maskedlark.compute.child_process import follow_parent
from maskedlark.core.decimals import whole
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import NotDeclared
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.wire import batch, columns
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import Key
from maskedlark.wire.hpke import SealingKey

CHUNK = 1000
"""Reports per task of a process."""


@dataclass(frozen=True)
class Population:
    """Browsers that all saw an ad of one origin at the same moment, and report under one document."""

    document: Document
    keys: tuple[SealingKey, ...]
    """The helpers', in the order of the document."""
    seen: int
    """When the ads were seen; reports are made a window and a random delay later."""
    rng: Randomness
    pool: Executor | None = None
    """The processes that seal; None: this process does."""
    progress: bool = False

    def train(
        self, tag: str, features: NDArray[np.uint8], labels: Sequence[ArrayLike]
    ) -> Iterator[list[bytes]]:
        """Reports to train: byte features (n, d), and a column of labels for every declared label."""
        rows, shown, secrets = self.train_columns(tag, features, labels)
        place, model = list(self.document.declared_models).index(tag), self.document.declared_models[tag]
        return self._seal(Purpose.TRAIN, place, columns.train_columns(place, model, rows, shown), secrets)

    def measure(self, keys: Sequence[Sequence[Key]], values: Sequence[ArrayLike]) -> Iterator[list[bytes]]:
        """Reports to aggregate: a column for every declared key, and one for every declared value."""
        mixed, secrets = self.measure_columns(keys, values)
        shown = columns.aggregate_columns(self.document.measure, mixed, len(secrets))
        return self._seal(Purpose.AGGREGATE, 0, shown, secrets)

    def train_columns(
        self, tag: str, features: NDArray[np.uint8], labels: Sequence[ArrayLike]
    ) -> tuple[NDArray[np.uint8], list[NDArray[np.int64]], FieldArray]:
        """What these reports hold, fakes included: open features and candidates; secret masks."""
        model, declared = self.document.trained(tag), self.document.declared_models[tag]
        wanted = declared.width
        if features.ndim != 2 or features.shape[1] != wanted:
            raise NotDeclared(f"model {tag} takes columns of {wanted} bytes, not {features.shape[1:]}")
        decoys = [bytes.fromhex(decoy.columns or "") for decoy in self.document.decoys if decoy.tag == tag]
        order, real, drawn = self._with_fakes(len(features), len(decoys), self.document.fakes_of(tag))
        fakes = np.frombuffer(b"".join(decoys), np.uint8).reshape(-1, wanted)
        rows = np.concatenate([features, fakes[drawn]])[order]
        drawn_labels = [np.concatenate([column, np.zeros(len(drawn), int)])[order] for column in labels]
        rows = with_noise(model, rows, self.rng)
        return rows, *declared.mask(drawn_labels, real, self.rng, model.randomised_response)

    def measure_columns(
        self, keys: Sequence[Sequence[Key]], values: Sequence[ArrayLike]
    ) -> tuple[list[list[Key]], FieldArray]:
        """What these reports hold, fakes included: open keys; secret count and values."""
        measure = self.document.measure
        decoys = [decoy.keys for decoy in self.document.decoys if decoy.keys is not None]
        count = np.shape([*values, *keys][0])[0]
        order, real, drawn = self._with_fakes(count, len(decoys), self.document.fake_rate)
        mixed = []
        for name, column in zip(measure.keys, keys, strict=True):
            everyone = [*column, *(decoys[i][name] for i in drawn)]
            mixed.append([everyone[i] for i in order])
        rounded = [whole(column, "a value", self.rng) for column in values]
        lifted = [np.concatenate([column, np.zeros(len(drawn), int)])[order] for column in rounded]
        return mixed, measure.lift(lifted, real)

    def _with_fakes(
        self, count: int, decoys: int, rate: float
    ) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.int64]]:
        """A random order of all records, fakes included; which are real; and the fakes' decoys."""
        fakes = int((self.rng.unit(count) < rate).sum()) if decoys else 0
        order = np.argsort(self.rng.below(1 << 62, count + fakes))
        return order, order < count, self.rng.below(max(decoys, 1), fakes)

    def _seal(
        self, purpose: Purpose, place: int, shown: ByteRows, secrets: FieldArray
    ) -> Iterator[list[bytes]]:
        """Yield chunks of reports, in order."""
        document = self.document
        envelope = Envelope(document.layout(purpose), self.keys)
        ends = self.seen + document.attribution_window_s
        hours = [hour_of(ends + wait) for wait in draw_waits(document.delay, len(shown), self.rng).tolist()]
        starts = range(0, len(shown), CHUNK)
        chunks = (
            (envelope, place, shown[i : i + CHUNK], secrets[i : i + CHUNK], hours[i : i + CHUNK])
            for i in starts
        )
        with Progress(console=Console(stderr=True), transient=True, disable=not self.progress) as bar:
            task = bar.add_task("browsers make reports", total=len(shown))
            sealed = (batch.seal(*chunk, self.rng) for chunk in chunks)
            for made in self.pool.map(batch.seal_apart, chunks) if self.pool else sealed:
                bar.advance(task, len(made))
                yield made


def preload() -> None:
    """Begin to import what `processes` need, in a process of its own, while the caller goes on."""
    get_context("forkserver").set_forkserver_preload([batch.__name__])
    resource_tracker.ensure_running()  # First: starting it unblocks signals.
    # The process ignores Ctrl-C once it has imported: until then Ctrl-C waits, and is forgotten.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def processes(count: int) -> ProcessPoolExecutor:
    """Processes for a population, forked from one that has imported what seals, and has none of ours."""
    preload()
    return ProcessPoolExecutor(count, get_context("forkserver"), follow_parent)
