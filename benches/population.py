"""A population of browsers against bare HPKE, both on the same two processes."""

import json
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np

from benches.timing import seconds
from maskedlark.browser.population import CHUNK
from maskedlark.parameters import document
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate import Population, processes
from maskedlark.wire.hpke import OpeningKey, SealingKey

FEATURES, HELPERS, WORKERS = 100, 2, 2
REPORTS = 20_000
ROUNDS = 5


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """100 features, 2 candidate labels, 2 helpers. Start of the processes is not counted for either side."""
    with processes(WORKERS) as pool:
        unchecked = _ratio(_document("none"), pool, lambda turn: progress(f"unchecked, round {turn}"))
        figures = _ratio(_document("bits"), pool, lambda turn: progress(f"round {turn} of {ROUNDS}"))
    ratio = {"unchecked_population_ratio": unchecked["population_ratio"]}
    return {"reports": REPORTS, "processes": WORKERS, **figures, **ratio}


def _ratio(declared: Document, pool: Executor, progress: Callable[[int], None]) -> dict[str, object]:
    """Both sides take turns over the same processes."""
    rng = SystemRandomness()
    keys = tuple(OpeningKey.generate(rng).sealing for _ in range(HELPERS))
    features = np.frombuffer(rng.bytes(REPORTS * FEATURES), np.uint8).reshape(REPORTS, FEATURES)
    labels = rng.below(2, REPORTS)
    sizes = [payload.size for payload in declared.layout(declared.purposes()[0]).payloads]
    jobs = [
        (key, CHUNK, size) for key, size in zip(keys, sizes, strict=True) for _ in range(REPORTS // CHUNK)
    ]
    population = Population(declared, keys, 1_794_441_600, rng, pool=pool)
    list(pool.map(_bare, jobs[:4]))  # both processes are up and have all modules
    list(population.train("bench", features[: 4 * CHUNK], [labels[: 4 * CHUNK]]))
    ours, bare = [], []
    for turn in range(ROUNDS):
        progress(turn + 1)
        ours.append(seconds(lambda: sum(map(len, population.train("bench", features, [labels])))))
        bare.append(seconds(lambda: list(pool.map(_bare, jobs))))
    ratios = sorted(theirs / mine for mine, theirs in zip(ours, bare, strict=True))
    return {
        "reports_per_s": round(REPORTS / min(ours)),
        "bare_seal_per_s": round(HELPERS * REPORTS / min(bare)),
        "population_ratio": round(ratios[len(ratios) // 2], 3),
    }


def _bare(job: tuple[SealingKey, int, int]) -> int:
    key, count, size = job
    plain, info = bytes(size), bytes(200)
    return len([key.seal(plain, info) for _ in range(count)])


def _document(checks: str) -> Document:
    identity = [OpeningKey.generate(SystemRandomness()).sealing.public.hex() for _ in range(HELPERS)]
    settings = {
        "origin": "ads.example",
        "version": 1,
        "previous": None,
        "not_after": 1 << 32,
        "document_key": identity[0],
        "request_key": identity[1],
        "helpers": [{"name": f"helper-{i}", "identity": each} for i, each in enumerate(identity)],
        "k": 50,
        "checks": checks,
        "budget": {"epsilon": 8, "delta": 1e-6},
        "training": {"adserver": {"epsilon": 4, "delta": 1e-6}, "coalition": {"epsilon": 40, "delta": 1e-6}},
        "mechanisms": {"gradient": {"kind": "gaussian", "noise_floor": 0.5}},
        "models": [
            {
                "tag": "bench",
                "columns": [{"kind": "bytes", "count": FEATURES}],
                "labels": [{"kind": "binary"}],
                "gradient_bound": 1,
            }
        ],
        "attribution_window_s": 604_800,
        "delay": {"kind": "uniform", "max_s": 86_400},
        "report_lifetime_s": 2_592_000,
    }
    return document.parse(json.dumps(settings))
