"""What it costs to train through helpers: an epoch over HTTP over an epoch of the same algorithm in memory.

Over HTTP: two helper processes, each with one core, answer every step; the ad server's process, on either,
quantises, signs, asks, adds up and descends. In memory: one process, on one core, does what one helper does
in a step: weights read, batch drawn, masked gradients clipped and summed, noise, mask. No HTTP, no signature,
no database; nor is the ad server's own work counted there, so `cost_multiplier` is never flattered by it.
`whole_loop` is the ratio with that work in both.

The loops take turns, a few steps each, so that a slow spell of the machine hits both; figures are medians
over rounds. An epoch is records / batch steps in both, so the ratio of steps is that of epochs. WBCD is
scikit-learn's where that is installed, else random bytes of its shape. MNIST's pixels are random bytes here:
no time depends on what a byte is.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from benches.timing import seconds
from maskedlark.adserver.session import Session
from maskedlark.browser.population import Population, processes
from maskedlark.clock import SystemClock
from maskedlark.core import batches, sharing
from maskedlark.core import field as numbers
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.dp import mechanisms
from maskedlark.functions.gradient import GradientSteps
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.release import shards, zero_sum
from maskedlark.release.parts import Batches
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.training.client import Client
from maskedlark.training.training import Training
from maskedlark.wire.steps import Ranges

TAG, DATASET = "m", "all"
NOISE, DELTA = 20.0, 1e-6
ROUNDS, WARM_UP = 20, 3
"""A round is a few steps over HTTP, and then as many in memory."""


class Case(NamedTuple):
    """One network and its data, with what the paper's authors measured."""

    sizes: tuple[int, ...]
    records: int
    round: int
    """Steps of each loop in a round."""
    authors: Mapping[int, float]
    """Their cost multiplier by batch size, as read off the paper's figure of it."""


CASES = {
    "wbcd": Case((30, 50, 50, 1), 569, 10, {5: 29.5, 10: 20.0, 50: 8.7, 100: 7.5, 500: 6.6}),
    "mnist": Case((784, 500, 10), 60_000, 3, {10: 45.1, 100: 39.6, 1000: 39.0}),
}
MOST = 90.0
"""ε that a source may cost: helpers of a cluster accept 100 at most."""
_SETTINGS = """
k = 1
values = {{digit = [0, 9]}}
budget = {{epsilon = {most}, delta = 1e-3}}
training = {{adserver = {{epsilon = {less}, delta = 1e-3}}, coalition = {{epsilon = {most}, delta = 1e-3}}}}
[[models]]
tag = "{tag}"
columns = [{{kind = "bytes", count = {features}}}]
labels = [{label}]
gradient_bound = {bound}
{local}
[mechanisms]
gradient = {{kind = "gaussian", noise_floor = 0.01}}
sums = {{kind = "laplace", noise_floor = 1.0}}
"""


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """By data: multipliers and bytes, each by batch size."""
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    try:
        return {name: _figures(race(name, case, progress)) for name, case in CASES.items()}
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


class LoopTimes(NamedTuple):
    """Both loops at one batch size. Milliseconds and bytes are those of a step."""

    multiplier: float
    spread: float
    """Half of what lies between the quartiles of the rounds' multipliers."""
    whole_loop: float
    http_ms: float
    memory_ms: float
    request_bytes: float
    """To all helpers, the lines and headers of HTTP with it."""
    answer_bytes: float
    """From all helpers."""

    @property
    def bytes_per_step(self) -> float:
        """Both ways."""
        return self.request_bytes + self.answer_bytes


class Race(NamedTuple):
    """What was found at every batch size, and what it took to bring the data there."""

    case: Case
    found: Mapping[int, LoopTimes]
    upload_bytes: int
    """To and from all helpers, once for all epochs."""
    upload_s: float
    """To make all reports, upload, send and freeze them: once, before the first epoch."""


def race(name: str, case: Case, progress: Callable[[str], None], rounds: int = ROUNDS) -> Race:
    """Start services, send records, and run both loops at every batch size. Also run by the cost figure."""
    features, labels = _data(name, case)
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), declared(case.sizes), SystemRandomness(), workers=os.cpu_count()) as made,
        made.client() as client,
    ):
        traffic = _Traffic(client)
        progress(f"{name}: {len(features)} reports are made and sent")
        # A second process takes longer to start than to make a few reports.
        took = send(made, client, features, labels, makers=1 + (len(features) > 1000))
        uploaded = sum(traffic.taken())
        _pin(made)
        alone = _records(features, case)
        found = {}
        for size in case.authors:
            found[size] = _race(case, size, client, alone, traffic, rounds)
            progress(f"{name}: batches of {size}: {found[size]}")
    return Race(case, found, uploaded, took)


def _figures(raced: Race) -> dict[str, object]:
    case, found, uploaded, took = raced

    def by_size(figure: Callable[[int, LoopTimes], float]) -> dict[str, float]:
        return {str(size): round(figure(size, each), 2) for size, each in found.items()}

    return {
        "cost_multiplier": by_size(lambda _, each: each.multiplier),
        "authors": {str(size): theirs for size, theirs in case.authors.items()},
        "whole_loop": by_size(lambda _, each: each.whole_loop),
        "step_ms": by_size(lambda _, each: each.http_ms),
        "in_memory_step_ms": by_size(lambda _, each: each.memory_ms),
        "bytes": by_size(lambda _, each: each.bytes_per_step),
        "bytes_with_upload": by_size(
            lambda size, each: each.bytes_per_step + uploaded / (case.records / size)
        ),
        "upload_bytes": uploaded,
        "upload_s": round(took, 1),
        "records": case.records,
    }


# Two runs of one loop.


_Steps = Generator[None, None, None]
"""A loop that stops after every step."""


class _Turn(NamedTuple):
    """Seconds a step, of one round."""

    http: float
    memory: float
    memory_loop: float


def _race(
    case: Case, size: int, client: Client, records: TrainingRecords, traffic: "_Traffic", rounds: int
) -> LoopTimes:
    """Both loops in turns, at one batch size."""
    steps = WARM_UP + rounds * case.round
    over_http, in_memory = (_begin(case, size, client, steps) for _ in range(2))
    alone = _Alone(in_memory, records)
    in_memory.sums = cast("Session", alone)
    theirs, ours = _steps(over_http), _steps(in_memory)
    for _ in range(WARM_UP):
        next(theirs), next(ours)
    traffic.taken()
    turns = [_turn(case.round, theirs, ours, alone) for _ in range(rounds)]
    sent, came = (travelled / (rounds * case.round) for travelled in traffic.taken())
    theirs.close()
    ours.close()
    low, middle, high = statistics.quantiles((turn.http / turn.memory for turn in turns), n=4)
    return LoopTimes(
        middle,
        (high - low) / 2,
        statistics.median(turn.http / turn.memory_loop for turn in turns),
        1000 * statistics.median(turn.http for turn in turns),
        1000 * statistics.median(turn.memory for turn in turns),
        sent,
        came,
    )


def _turn(steps: int, theirs: _Steps, ours: _Steps, alone: "_Alone") -> _Turn:
    def some(loop: _Steps) -> None:
        for _ in range(steps):
            next(loop)

    http = seconds(lambda: some(theirs))
    alone.took = 0.0
    with _one_core():
        memory_loop = seconds(lambda: some(ours))
    return _Turn(http / steps, alone.took / steps, memory_loop / steps)


def _begin(case: Case, size: int, client: Client, steps: int) -> Training:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(case.sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    made: Training = client.training(
        torch.nn.Sequential(*layers[:-1]),
        loss="bce" if case.sizes[-1] == 1 else "softmax",
        tag=TAG,
        sampling_rate=size / case.records,
        steps=steps,
        noise=NOISE,
        delta=DELTA,
    )
    made.console = Console(quiet=True)
    return made


def _steps(training: Training) -> _Steps:
    """The user's loop. One helper's share is no gradient: weights stay where they are, in both loops."""
    optimizer = torch.optim.SGD(training.model.parameters(), lr=0.0)
    with training:
        for step in training:
            optimizer.zero_grad()
            step.backward()
            optimizer.step()
            yield


@dataclass(frozen=True, eq=False)
class _Held:
    """Records in memory, as a shard."""

    held: TrainingRecords

    def __len__(self) -> int:
        return len(self.held)

    def records(self, rows: NDArray[np.intp] | None = None) -> TrainingRecords:
        """All of them, or some."""
        return self.held.select_rows(rows)


class _Alone:
    """One helper's steps, in this process: what `StepDesk.answer` does, but for the database."""

    def __init__(self, training: Training, records: TrainingRecords) -> None:
        self.took = 0.0
        self._records, self._seed = records, SystemRandomness().bytes(batches.SEED_BYTES)
        self._steps = GradientSteps(TAG, training.network, training.clip)
        sampling = training.planned.sampling
        self._batches = Batches(sampling, TAG, [self._seed], [0], [len(records)])

    def open(self) -> Mapping[str, OpenedReceipt]:
        """Nobody has to be asked."""
        return {}

    def step(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:  # noqa: ARG002
        """The sum of one step, over this helper's shares alone."""
        start = time.perf_counter()
        question = self._steps.at(body, self._seed)
        (column,) = question.columns
        (rows,) = self._batches.work(number).cut([[_Held(self._records)]], SystemRandomness())
        (table,) = question.tables([shards.over(shards.Computation(question), [rows])], 1)
        share = np.ascontiguousarray(table.shares[0][0])
        seed = self._seed[:-8] + number.to_bytes(8, "big")
        noise = mechanisms.draw("gaussian", NOISE, column.sensitivity, seed, share.size)
        answer = zero_sum.masked(numbers.add(share, numbers.from_signed(noise)), seed, 1, 2)
        self.took += time.perf_counter() - start
        return answer

    def close(self) -> Mapping[str, ClosedReceipt]:
        """Nothing was charged."""
        return {}

    def stop(self) -> None:
        """Nothing is held."""


# The data, and what travels.


def _data(name: str, case: Case) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    if name == "wbcd":
        with suppress(ImportError):
            from sklearn.datasets import load_breast_cancer  # noqa: PLC0415

            values, labels = load_breast_cancer(return_X_y=True)
            low, high = values.min(axis=0), values.max(axis=0)
            scaled = np.floor((values - low) / (high - low) * 255).astype(np.uint8)
            return scaled[: case.records], labels.astype(np.int64)[: case.records]
    features = rng.integers(0, 256, (case.records, case.sizes[0]), dtype=np.uint8)
    return features, rng.integers(0, max(2, case.sizes[-1]), case.records)


def _records(features: NDArray[np.uint8], case: Case) -> TrainingRecords:
    """As one helper holds them: its shares are uniform, whatever the labels are."""
    rng, shown = SystemRandomness(), max(2, case.sizes[-1])
    shares = rng.below(numbers.P, len(features) * shown).reshape(-1, shown)
    return TrainingRecords(
        sharing.random_rows(len(features), sharing.ID_BYTES, rng), features, (np.arange(shown)[None],), shares
    )


def declared(sizes: Sequence[int], bound: float = 1.0, local: str = "", most: float = MOST) -> str:
    """A document's settings for one network. Also run by experiments. `local`: lines of the model's noise."""
    label = '{kind = "binary"}' if sizes[-1] == 1 else '{kind = "categorical", classes = 10, value = "digit"}'
    given = {"label": label, "bound": bound, "local": local, "most": most, "less": most - 1}
    return _SETTINGS.format(tag=TAG, features=sizes[0], **given)


def send(
    made: LocalCluster,
    client: Client,
    features: NDArray[np.uint8],
    labels: NDArray[np.int64],
    makers: int = 1,
) -> float:
    """As browsers and the ad server do; the helpers hold a frozen dataset afterwards. Returns the seconds.

    `makers`: processes that make the reports. Also run by experiments.
    """
    document, start = made.document, time.perf_counter()
    seen = SystemClock().now() - document.attribution_window_s - document.delay.max_s - 3600
    with processes(makers) if makers > 1 else nullcontext() as pool:
        population = Population(document, made.sealing_keys(), seen, SystemRandomness(), pool)
        made.upload(population.train(TAG, features, [labels]))
    made_s = time.perf_counter() - start
    time.sleep(1.1)  # A dataset ends with a whole second.
    start = time.perf_counter()
    client.select(DATASET, purpose=Purpose.TRAIN)
    client.send(DATASET)
    return made_s + time.perf_counter() - start


def _pin(made: LocalCluster) -> None:
    """Every helper, all its threads, on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    for place, helper in enumerate(made.helpers):
        for thread in Path(f"/proc/{helper.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[place % len(cores)]})


@contextmanager
def _one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


class _Traffic:
    """Bytes between the ad server and all helpers: bodies, and the lines and headers of HTTP."""

    def __init__(self, client: Client) -> None:
        self._sent = self._came = 0
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._send], "response": [self._receive]}
        client._connections.http.event_hooks = hooks

    def taken(self) -> tuple[int, int]:
        """To helpers and from them, since it was asked last."""
        found, self._sent, self._came = (self._sent, self._came), 0, 0
        return found

    def _send(self, request: httpx.Request) -> None:
        line = len(request.method) + len(request.url.raw_path) + len("  HTTP/1.1rn")
        self._sent += line + _counted(request.headers)

    def _receive(self, response: httpx.Response) -> None:
        self._came += len("HTTP/1.1 200 OKrn") + _counted(response.headers)


def _counted(headers: httpx.Headers) -> int:
    """Of a header: colon, space, line's end; of all headers: an empty line; and the body."""
    said = sum(len(name) + len(value) + 4 for name, value in headers.raw)
    return said + 2 + int(headers.get("content-length", "0"))
