"""A helper that takes a dataset over HTTP, against bare HPKE on the same payloads; and its memory.

The helper is `maskedlark helper serve`, on one core; the ad server that sends is this process, on another. It
stands in for helper 0 too, which made the check key and publishes numbers that make all reports valid.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvicorn

from benches.timing import seconds
from maskedlark.adserver.sending import IN_FLIGHT
from maskedlark.clock import SystemClock, hour_of
from maskedlark.core import field, sharing, validity
from maskedlark.core.purpose import Purpose
from maskedlark.helper.check_keys import derive
from maskedlark.helper.keyring import CHECK_LABEL, Keyring
from maskedlark.ledger.receipt import Certificate, SignedCertificate, certify
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.publisher import Pinned, Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release import check_messages, shared_seed
from maskedlark.web.remote import SignedRemote, UrlQuery
from maskedlark.wire import columns
from maskedlark.wire.checks import CHECKS_TYPE, Checks, encode_relay
from maskedlark.wire.columns import SALT_BYTES
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    PARTS,
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
    State,
    encode_chunk,
)
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.report import ID_BYTES, Head
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY, make

FEATURES = 100
PLACE = 1
"""This helper has the harder part: it expands its masks from seeds."""
NAME, ORIGIN, TAG = f"helper-{PLACE}", "ads.example", "ConversionModel11005"
CHUNKS, ROUNDS = 10, 7
MILLION = 1_000_000
SAMPLE_S = 0.1
DAY_S = 86_400
CHECK_SECRET = HELPER_KEYS[0].derive(CHECK_LABEL)


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Parts a second, from the first byte sent to a frozen dataset, and the memory that a million takes."""
    cores = sorted(os.sched_getaffinity(0))
    helper_core, sender_core = cores[0], cores[-1]
    figures: dict[str, object] = {"features": FEATURES, "parts_in_a_chunk": PARTS}
    for checks in ("none", "bits"):
        document = document_of(checks)
        with tempfile.TemporaryDirectory() as folder, parameter_service(Path(folder), document) as service:
            with helper_process(Path(folder) / "pinned", service, "workers = 1", {helper_core}) as helper:
                os.sched_setaffinity(0, {sender_core})
                speed = _speed(document, helper, {helper_core}, progress)
                os.sched_setaffinity(0, cores)
            if not document.checked:
                figures |= {f"unchecked_{name}": speed[name] for name in ("ingest_ratio", "cpu_ratio")}
                continue
            with helper_process(
                Path(folder) / "large", service, f"workers = {len(cores)}", set(cores)
            ) as helper:
                figures |= speed | _memory(document, helper, progress)
    return figures


def _speed(
    document: Document, helper: "RunningHelper", core: set[int], progress: Callable[[str], None]
) -> dict[str, object]:
    """They take turns on one core, each over the same payloads of its round."""
    pairs, parts = [], CHUNKS * PARTS
    for turn in range(ROUNDS + 1):
        progress(f"round {turn} of {ROUNDS}: {parts} parts, checks: {document.checks}")
        made = [make_chunk(document, helper.key.sealing, PARTS) for _ in range(CHUNKS)]
        chunks, sealed = [chunk for chunk, _ in made], [each for _, some in made for each in some]
        before = cpu_s(helper.pid)
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            took = seconds(partial(send_dataset, document, helper, f"round-{turn}", chunks, threads))
        mine = _Cost(took, cpu_s(helper.pid) - before)
        pairs.append((mine, _bare(helper.key, sealed, core)))
    del pairs[0]  # Both had to warm up.
    return {
        "ingest_per_s": round(parts / statistics.median(mine.wall_s for mine, _ in pairs)),
        "bare_open_per_s": round(parts / statistics.median(bare.wall_s for _, bare in pairs)),
        "ingest_ratio": round(statistics.median(bare.wall_s / mine.wall_s for mine, bare in pairs), 3),
        "ingest_cpu_us": round(1e6 * statistics.median(mine.cpu_s for mine, _ in pairs) / parts, 1),
        "bare_open_cpu_us": round(1e6 * statistics.median(bare.cpu_s for _, bare in pairs) / parts, 1),
        "cpu_ratio": round(statistics.median(bare.cpu_s / mine.cpu_s for mine, bare in pairs), 3),
    }


class _Cost(NamedTuple):
    """Time on the clock, and time of processors, which is the same however busy the machine is."""

    wall_s: float
    cpu_s: float


def _bare(key: OpeningKey, sealed: Sequence["_Sealed"], core: set[int]) -> _Cost:
    """Bare HPKE, on the core where the helper waits for its next turn."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    start = time.process_time()
    took = seconds(lambda: [key.open(data, info) for data, info in sealed])
    cost = _Cost(took, time.process_time() - start)
    os.sched_setaffinity(0, before)
    return cost


def _memory(
    document: Document, helper: "RunningHelper", progress: Callable[[str], None]
) -> dict[str, object]:
    """Peak memory of the helper and its workers while it takes and freezes a million reports."""
    chunks = -(-MILLION // PARTS)
    makers = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    with watched(helper.pid) as peak, makers, ThreadPoolExecutor(IN_FLIGHT) as threads:
        sent = _made(makers, document, helper.key.sealing, chunks, progress)
        took = seconds(lambda: send_dataset(document, helper, "million", sent, threads))
    return {
        "million_reports": chunks * PARTS,
        "million_s": round(took, 1),
        "peak_rss_mb": round(peak.sampled / 2**20),
        "peak_hwm_mb": round(peak.high_water / 2**20),
        "processes": peak.processes,
    }


# The reports: one helper's part of each, which is all that it is sent.


class _Sealed(NamedTuple):
    data: bytes
    info: bytes


class Chunk(NamedTuple):
    """What a helper is sent of a chunk, and helper 0's message on it, if reports are checked."""

    body: bytes
    message: bytes


def document_of(checks: str) -> Document:
    """What all reports here are made under."""
    model = {
        "tag": TAG,
        "columns": [{"kind": "bytes", "count": FEATURES}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    }
    return make(models=[model], decoys=[], fake_rate=0.0, checks=checks)


def make_chunk(document: Document, key: SealingKey, count: int) -> tuple[Chunk, list[_Sealed]]:
    """A chunk of parts, and what is sealed in it with what it is bound to."""
    rng, model = SystemRandomness(), document.declared_models[TAG]
    layout, hour = document.layout(Purpose.TRAIN), hour_of(SystemClock().now())
    features = sharing.random_rows(count, FEATURES, rng)
    candidates, _ = model.mask([rng.below(2, count)], np.ones(count, np.bool_), rng)
    shown = columns.train_columns(0, model, features, candidates)
    salted = np.concatenate([sharing.random_rows(count, SALT_BYTES, rng), shown], axis=1)
    payload, seeds = layout.payloads[PLACE], sharing.random_rows(count, sharing.SEED_BYTES, rng)
    bound, parts, sealed = layout.info(PLACE, key.key_id), [], []
    for row, plain in zip(salted, payload.rows(0, salted, seeds), strict=True):
        digest = columns.digest(row.tobytes(), Purpose.TRAIN)
        head = Head(rng.bytes(ID_BYTES), hour, digest).encode()
        each = _Sealed(key.seal(plain.tobytes(), bound + head), bound + head)
        sealed.append(each)
        parts.append(head + key.key_id + each.data)
    rows = sharing.byte_rows(b"".join(parts), layout.part_size(PLACE))
    message = _first_message(document, rows[:, :ID_BYTES], seeds) if document.checked else b""
    return Chunk(encode_chunk(rows), message), sealed


def _first_message(document: Document, ids: sharing.ByteRows, seeds: sharing.ByteRows) -> bytes:
    """What helper 0 publishes of these reports: with our helper's numbers, all are valid."""
    rng, model, key = SystemRandomness(), document.declared_models[TAG], derive(CHECK_SECRET, document)
    t = validity.challenges(key.key, ids, model.points())
    shares = sharing.expand(seeds, ids, Purpose.TRAIN, PLACE, model.carried())
    f, g = validity.evaluate(shares, t, model).T
    total = rng.below(field.P, len(ids))
    product = field.multiply(total, field.subtract(total, np.ones(1, np.int64)))
    numbers = np.stack([field.subtract(total, f.copy()), field.subtract(product, g.copy())], axis=1)
    now = SystemClock().now()
    checks = Checks(0, now, ORIGIN, document.digest, key.digest, ids, numbers)
    return check_messages.sign(checks, _first_signer())


@cache
def _first_signer() -> tuple[SigningKey, SignedCertificate]:
    """Helper 0's key for receipts and checks."""
    key, now = SigningKey(SystemRandomness().bytes(32)), SystemClock().now()
    claimed = Certificate(
        helper="helper-0", key=key.verifying.public.hex(), not_before=now - DAY_S, not_after=now + DAY_S
    )
    return key, certify(claimed, HELPER_KEYS[0])


def make_body(document: Document, key: SealingKey) -> Chunk:
    """A chunk of the usual size."""
    return make_chunk(document, key, PARTS)[0]


def _made(
    makers: ProcessPoolExecutor,
    document: Document,
    key: SealingKey,
    chunks: int,
    progress: Callable[[str], None],
) -> Iterator[Chunk]:
    """Chunks that other processes make while the helper takes those before: few are in memory at a time."""
    waiting = [makers.submit(make_body, document, key) for _ in range(2 * IN_FLIGHT)]
    for number in range(chunks):
        if number % 50 == 0:
            progress(f"{number * PARTS} of {chunks * PARTS} reports")
        chunk = waiting.pop(0).result()
        if number + len(waiting) + 1 < chunks:
            waiting.append(makers.submit(make_body, document, key))
        yield chunk


# The ad server.


def send_dataset(
    document: Document,
    helper: "RunningHelper",
    name: str,
    chunks: Iterable[Chunk],
    threads: ThreadPoolExecutor,
) -> Frozen:
    """A whole dataset: open, chunks, checks, freeze."""
    path, clock = f"/v2/datasets/{name}", SystemClock()
    with SignedRemote(helper.url, NAME, ORIGIN, REQUEST_KEY, clock) as remote:
        if document.checked:
            key_path = f"/v2/check-keys/{document.digest.hex()}/message"
            remote.post(key_path, _key_message(document, helper.key.sealing), JSON_TYPE)
        query: UrlQuery = {"attempt": SystemRandomness().bytes(16).hex()}
        new = NewDataset(attempt=str(query["attempt"]), parameters=document.digest.hex(), purpose="train")
        State.decode(remote.post(path, new.encode(), JSON_TYPE))

        def send(numbered: tuple[int, Chunk]) -> str:
            number, chunk = numbered
            place = f"{path}/chunks/{number}"
            answer = ChunkAnswer.decode(remote.post(place, chunk.body, CHUNK_TYPE, query))
            assert not answer.refused, answer.refused
            if not document.checked:
                return answer.accepted
            remote.get(f"{place}/checks", query)  # What the other helper would be sent.
            relay = encode_relay([chunk.message])
            checked = CheckAnswer.decode(remote.post(f"{place}/checks", relay, CHECKS_TYPE, query))
            assert (checked.valid, checked.invalid) == (answer.accepted, 0)
            return checked.valid

        accepted = [*_each(threads, send, enumerate(chunks))]
        return Frozen.decode(
            remote.post(
                f"{path}/freeze", FreezeRequest(accepted=tuple(accepted)).encode(), FREEZE_TYPE, query
            )
        )


def _key_message(document: Document, key: SealingKey) -> bytes:
    """The check key, from helper 0 to both."""
    recipients = {"helper-0": OpeningKey.generate(SystemRandomness()).sealing, NAME: key}
    made = derive(CHECK_SECRET, document).key, document, None, recipients, _first_signer()
    return shared_seed.make(*made, SystemClock().now()).encode()


def _each(
    threads: ThreadPoolExecutor,
    work: Callable[[tuple[int, Chunk]], str],
    given: Iterator[tuple[int, Chunk]],
) -> Iterator[str]:
    """All answers in order, with few under way: `map` would ask for all that is given at once."""
    waiting = [threads.submit(work, each) for each in islice(given, IN_FLIGHT)]
    while waiting:
        yield waiting.pop(0).result()
        waiting += [threads.submit(work, each) for each in islice(given, 1)]


# The helper, and whom it asks for documents.


@contextmanager
def parameter_service(folder: Path, document: Document) -> Iterator[str]:
    """The address of a service that shows the document."""
    clock, pinned = SystemClock(), Pinned({ORIGIN: DOCUMENT_KEY.verifying})
    store = Store(folder / "parameters.db")
    Publisher(store, SERVICE_KEY, clock, pinned).publish(chain.sign(document, DOCUMENT_KEY))
    app = create_app(store, SERVICE_KEY, clock, pinned)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    running = threading.Thread(target=server.run)
    running.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        running.join()
        store.close()


class RunningHelper(NamedTuple):
    """A helper's address, its secret key and its process."""

    url: str
    key: OpeningKey
    pid: int


@contextmanager
def helper_process(
    folder: Path, service: str, compute: str, cores: set[int], keys: Path | None = None
) -> Iterator[RunningHelper]:
    """A helper that serves, with these settings of `[compute]`; `keys`: those of another."""
    folder.mkdir()
    write_settings(folder / "helper.toml", service, compute)
    clock = SystemClock()
    keyring = Keyring(folder / "state" / "keys", NAME, 180 * DAY_S)
    if keys is None:
        keyring.rotate(HELPER_KEYS[PLACE], "http://127.0.0.1", clock.now(), SystemRandomness())
    else:
        shutil.copytree(keys, folder / "state" / "keys")
    (key,) = keyring.opening_keys(clock.now()).values()
    words = ["helper", "serve", "--config", str(folder / "helper.toml"), "--log-level", "WARNING"]
    command = [sys.executable, "-m", "maskedlark", *words]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # A new process stays where its parent was.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(0, before)
    try:
        assert process.stdout is not None
        yield RunningHelper(process.stdout.readline().split()[-1], key, process.pid)
    finally:
        process.terminate()
        process.wait()


def write_settings(path: Path, service: str, compute: str) -> None:
    """A helper's settings file."""
    trusted = json.dumps([key.verifying.public.hex() for key in HELPER_KEYS])
    path.write_text(f"""
name = "{NAME}"
address = "http://127.0.0.1"
folder = "state"
compute = {{{compute}}}
parameter_service = "{service}"
service_key = "{SERVICE_KEY.verifying.public.hex()}"
[origins]
"{ORIGIN}" = "{DOCUMENT_KEY.verifying.public.hex()}"
[policy]
trusted_helpers = {trusted}
max_budget = {{epsilon = 8.0, delta = 1e-6}}
max_coalition = {{epsilon = 40.0, delta = 1e-6}}
""")


# What processes take.


class Peak:
    """The most memory of a process and its children, all at one moment and each at its own."""

    def __init__(self) -> None:
        self.sampled = self.processes = 0
        self._high: dict[int, int] = {}
        self._own: dict[int, int] = {}

    @property
    def each_mb(self) -> list[int]:
        """The most of each process, the first first, as was seen: without what it maps from files."""
        return [size >> 20 for _, size in sorted(self._own.items())]

    @property
    def high_water(self) -> int:
        """The sum of each one's most."""
        return sum(self._high.values())

    def sample(self, pid: int) -> None:
        """Look now."""
        family = _family(pid)
        resident = 0
        for each in family:
            status = _status(each)
            resident += status.get("VmRSS", 0)
            self._high[each] = max(self._high.get(each, 0), status.get("VmHWM", 0))
            own = status.get("RssAnon", 0) + status.get("RssShmem", 0)
            self._own[each] = max(self._own.get(each, 0), own)
        self.sampled, self.processes = max(self.sampled, resident), max(self.processes, len(family))


@contextmanager
def watched(pid: int) -> Iterator[Peak]:
    """Look ten times a second, while the block runs."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            peak.sample(pid)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peak
    finally:
        over.set()
        watching.join()


def _family(pid: int) -> Sequence[int]:
    """A process and all that descend from it."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # It may have ended.
            children += map(int, task.read_text().split())
    return [pid, *(each for child in children for each in _family(child))]


def _status(pid: int) -> dict[str, int]:
    """Sizes in bytes, by name; nothing of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.split()[:2] for line in lines if line.startswith(("Vm", "Rss"))]
    return {name.rstrip(":"): int(size) * 1024 for name, size in pairs}


def cpu_s(pid: int) -> float:
    """Processor time of a process that runs, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
