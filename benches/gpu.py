"""One helper's masked step on a GPU that holds the records: weights and row numbers in, field elements out.

`step_ms` is a whole step without noise, from quantised weights to an array of the answer: layout, copies and
engine included. `share_ms` is the engine's part. Wall clock, medians. `same_as_cpu` compares the answers, and
`masked_cpu_ms` is the CPU's time for it on all cores. Needs a CUDA device, torch and numpy.
"""

import statistics
from collections.abc import Callable

import numpy as np
import torch

from benches.gradient import PSI, network_of
from benches.timing import seconds
from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import device as devices
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import GradientEngine, Records
from maskedlark.exact.layout import step_layout
from maskedlark.exact.quantise import quantise
from maskedlark.exact.resident import Columns

SHAPES = {"784-500-10": ((784, 500, 10), 50_000), "1000-1024-512-1": ((1000, 1024, 512, 1), 10_000)}
ROUNDS = 100
FRACTION = 16


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Milliseconds, keyed by network."""
    if not torch.cuda.is_available():
        raise SystemExit("gpu: no CUDA device here; run it on a machine that has one")
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    return about | {name: _measure(name, sizes, batch, progress) for name, (sizes, batch) in SHAPES.items()}


def _measure(
    name: str, sizes: tuple[int, ...], batch: int, progress: Callable[[str], None]
) -> dict[str, object]:
    progress(name)
    rng = np.random.default_rng(0)
    network, candidates, records = network_of(sizes), max(2, sizes[-1]), batch + batch // 10
    parameters = {
        entry.name: rng.uniform(-1, 1, entry.shape) / np.sqrt(entry.shape[-1]) for entry in network.parameters
    }
    weights, clip = (
        quantise(network, parameters, (7,) * (len(network.layers) - 1)),
        Clip(PSI, fraction=FRACTION),
    )
    held = TrainingRecords(
        rng.integers(0, 256, (records, 16)).astype(np.uint8),
        rng.integers(0, 256, (records, sizes[0])).astype(np.uint8),
        (np.arange(candidates)[None],),
        rng.integers(0, field.P, (records, candidates)),
    )
    columns = Columns.of(held, network, "cuda")
    places, counted = rng.integers(0, records, batch), rng.random(batch) < 0.99
    layout = step_layout(network, weights, clip)
    engine = GradientEngine(layout, devices.ready("cuda"))

    def step() -> np.ndarray:
        own = GradientEngine(step_layout(network, weights, clip), devices.ready("cuda"))
        return own.share(columns.rows(places, counted))

    shown = [np.broadcast_to(np.arange(candidates), (batch, candidates))]
    chosen = Records(held.features[places], shown, held.shares[places] * counted[:, None])
    on_cpu = GradientEngine(layout, devices.ready("cpu"))
    torch.cuda.reset_peak_memory_stats()
    same = bool((step() == on_cpu.share(chosen)).all())
    return {
        "step_ms": _median_ms(step),
        "share_ms": _median_ms(lambda: engine.share(columns.rows(places, counted))),
        "masked_cpu_ms": round(1000 * seconds(lambda: on_cpu.share(chosen)), 1),
        "same_as_cpu": same,
        "columns_mb": round(columns.size / 1e6, 1),
        "peak_mb": round(torch.cuda.max_memory_allocated() / 1e6),
    }


def _median_ms(work: Callable[[], object]) -> float:
    """After a few rounds to warm up. Every round ends with a copy from the device, which waits for it."""
    for _ in range(5):
        work()
    return round(statistics.median(1000 * seconds(work) for _ in range(ROUNDS)), 2)
