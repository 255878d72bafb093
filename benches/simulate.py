"""`maskedlark simulate` on a table of one's own, until it is ready, against bare HPKE for as many reports.

All processes of both sides use the same cores. With `BESIDE=/path/to/another/clone`, set up by its own
`scripts/setup`, that one takes turns with this one.
"""

import csv
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import numpy as np

from benches.timing import seconds
from maskedlark.browser.population import processes
from maskedlark.randomness import SystemRandomness
from maskedlark.wire.hpke import OpeningKey

HERE = Path(__file__).parents[1]
ROWS = {34_000: 3, 100_000: 4}
"""How often each is timed, after a run that is looked at for its memory, which takes time."""
CHUNK, PAYLOAD, INFO = 1_000, 150, 200
REPORTS_PER_ROW, HELPERS = 2 * 1.2, 2
"""One to aggregate and one to train, and a fake for every fifth."""
LOOK_S = 0.5
NAMED = "--key campaign --value bought=0..1 --value euros=0..200 --label bought"
FEATURES = "age visits visit_duration job education city month phone balance loan"


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Both sides take turns. The time includes the start of Python."""
    beside = os.environ.get("BESIDE")
    figures: dict[str, object] = {"reports_per_row": REPORTS_PER_ROW}
    with tempfile.TemporaryDirectory() as folder:
        for rows, rounds in ROWS.items():
            table = _table(Path(folder) / f"{rows}.csv", rows)
            clones = {"ours": HERE} | ({} if beside is None else {"before": Path(beside)})
            progress(f"{rows:,} rows, memory")
            pss = {name: _run(clone, table, _peak)[1] for name, clone in clones.items()}
            took: dict[str, list[float]] = {name: [] for name in (*clones, "hpke")}
            for turn in range(rounds):
                progress(f"{rows:,} rows, round {turn + 1} of {rounds}")
                for name, clone in clones.items():
                    took[name].append(_run(clone, table)[0])
                took["hpke"].append(_hpke(round(rows * REPORTS_PER_ROW)))
            figures[f"rows_{rows}"] = _figures(took, pss)
    return figures


def _figures(took: Mapping[str, Sequence[float]], pss: Mapping[str, float]) -> dict[str, object]:
    figures: dict[str, object] = {f"{name}_s": _median(each) for name, each in took.items()}
    figures |= {f"{name}_pss_mb": round(each) for name, each in pss.items()}
    for name in took.keys() - {"ours"}:
        turns = zip(took["ours"], took[name], strict=True)
        figures[f"ours_over_{name}"] = _median([ours / other for ours, other in turns])
    if "before" in pss:
        figures["pss_over_before"] = _median([pss["ours"] / pss["before"]])
    return figures


def _median(figures: Sequence[float]) -> float:
    return round(statistics.median(figures), 3)


def _table(path: Path, rows: int) -> Path:
    """Fifteen columns: numbers, categories, texts, an id, a date, and what people did. Always the same."""
    rng = np.random.default_rng(1)
    age, visits = rng.integers(18, 80, rows), rng.poisson(4, rows)
    bought = (rng.random(rows) < 1 / (1 + np.exp(3.2 - 0.03 * (age - 45) - 0.25 * visits))).astype(int)
    texts = {"campaign": 4, "job": 12, "education": 3, "city": 60, "month": 3}
    table = {
        "id": [f"u{place}" for place in range(rows)],
        "seen": (np.datetime64("2026-01-01") + rng.integers(0, 300, rows)).astype(str),
        "age": age,
        "visits": visits,
        "visit_duration": np.round(rng.gamma(2, 60, rows), 1),
        **{name: rng.choice([f"{name} {place}" for place in range(n)], rows) for name, n in texts.items()},
        "phone": rng.choice(["true", "false"], rows),
        "balance": rng.normal(1000, 800, rows).astype(int),
        "loan": rng.choice(["yes", "no", ""], rows),
        "bought": bought,
        "euros": np.where(bought, rng.integers(1, 200, rows), 0),
    }
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(np.asarray(cells).tolist() for cells in table.values()), strict=True))
    return path


@contextmanager
def _unseen(_pid: int) -> Iterator[list[int]]:
    yield [0]


Look = Callable[[int], AbstractContextManager[list[int]]]


def _run(clone: Path, table: Path, look: Look = _unseen) -> tuple[float, float]:
    """One simulation of a clone: seconds until "Ready", and megabytes at the peak. Then it is stopped.

    Of all its processes together: shared memory counts once.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [*NAMED.split(), *(f"--features={name}" for name in FEATURES.split())]
        command = [clone / ".venv/bin/maskedlark", "simulate", table, "--folder", f"{folder}/play", *words]
        began = time.perf_counter()
        with (
            subprocess.Popen(
                [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
            ) as running,
            look(running.pid) as peaks,
        ):
            assert running.stdout is not None
            assert running.stdout.readline().startswith(b"Ready"), "the simulation did not start"
            ready = time.perf_counter() - began
            running.send_signal(signal.SIGINT)
        return ready, max(peaks) / 1e3


@contextmanager
def _peak(pid: int) -> Iterator[list[int]]:
    """The kilobytes of a process and all that come from it, looked at again and again."""
    over, peaks = threading.Event(), [0]

    def look() -> None:
        while not over.wait(LOOK_S):
            peaks.append(sum(map(_pss_kb, _tree(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                yield from _tree(int(child))


def _pss_kb(pid: int) -> int:
    with suppress(OSError):  # It may have ended.
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _hpke(reports: int) -> float:
    """Every seal and every opening of so many reports, over two processes that are up."""
    key = OpeningKey.generate(SystemRandomness())
    jobs = [(key, CHUNK)] * (HELPERS * reports // CHUNK)
    with processes(os.cpu_count() or 1) as pool:
        list(pool.map(_sealed_and_opened, jobs[:4]))
        return seconds(lambda: list(pool.map(_sealed_and_opened, jobs)))


def _sealed_and_opened(job: tuple[OpeningKey, int]) -> int:
    key, count = job
    plain, info = bytes(PAYLOAD), bytes(INFO)
    return sum(len(key.open(key.sealing.seal(plain, info), info)) for _ in range(count))
