"""Make the test vectors of what helpers have in common, version 2: `python -m vectors.of_helpers`.

Batches and masks have to be the same to the bit at every helper, whoever wrote it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from maskedlark.core import batches, field
from maskedlark.randomness import FixedRandomness
from maskedlark.release import zero_sum
from vectors import SECOND, written
from vectors.good import Vectors

SEED = bytes(range(32))


def drawn() -> Vectors:
    """Poisson batches with the rows that fill them up, who is held out, and the batches of an epoch."""
    vectors: Vectors = []
    for tag, slot, rate, records in (
        ("ConversionModel11005", 0, 0.025, 400),
        ("ConversionModel11005", 1, 0.025, 400),
        ("m", 2**40, 0.6, 25),
        ("m", 7, 0.001, 20_000),
        ("m", 8, 1.0, 3),
        ("m", 9, 1e-9, 5),
    ):
        found = batches.poisson(SEED, tag, slot, rate, records)
        given = {"seed": SEED.hex(), "tag": tag, "slot": slot, "rate": rate, "records": records}
        rows = {
            "batch": found.batch.tolist(),
            "rows": found.rows.tolist(),
            "room": batches.room(rate, records),
        }
        vectors.append({"kind": "poisson", **given, **rows})
    for share, records in ((0.1, 60), (0.5, 20)):
        out = np.flatnonzero(batches.held_out(SEED, "m", share, records)).tolist()
        given = {"seed": SEED.hex(), "tag": "m", "share": share, "records": records}
        vectors.append({"kind": "held out", **given, "rows": out})
    for slot, count, records in ((0, 4, 22), (4, 4, 22), (0, 1, 3)):
        parts = [each.tolist() for each in batches.partition(SEED, "m", slot, count, records)]
        given = {"seed": SEED.hex(), "tag": "m", "slot": slot, "records": records}
        vectors.append({"kind": "partition", **given, "batches": parts})
    return vectors


def masks() -> Vectors:
    """Keys of masks from their parts, and what every helper's answer becomes."""
    vectors: Vectors = []
    for helpers in (2, 3, 5):
        rng = FixedRandomness(f"answers of {helpers}".encode())
        seeds = [rng.bytes(32) for _ in range(helpers - 1)]
        # In the order of a step: document, datasets, request, session, slots, body, engine, batches, size.
        bound: list[bytes | list[bytes]] = [
            rng.bytes(32),
            [rng.bytes(32) for _ in seeds],
            rng.bytes(32),
            rng.bytes(16),
        ]
        bound += [b"".join((each + 5).to_bytes(8, "big") for each in range(len(seeds))), rng.bytes(32)]
        bound += [b"gradient 1, exact 1, batches 1", (7).to_bytes(8, "big"), (4).to_bytes(8, "big")]
        key = zero_sum.key(seeds, *bound)
        answers = rng.below(field.P, 4 * helpers).reshape(helpers, 4)
        masked = [zero_sum.masked(each, key, place, helpers) for place, each in enumerate(answers)]
        vectors.append(
            {
                "seeds": [each.hex() for each in seeds],
                "bound": [
                    part.hex() if isinstance(part, bytes) else [p.hex() for p in part] for part in bound
                ],
                "key": key.hex(),
                "answers": [[str(number) for number in each] for each in answers],
                "masked": [[str(number) for number in each] for each in masked],
            }
        )
    return vectors


def _listed(parts: Sequence[bytes]) -> list[str]:
    return [part.hex() for part in parts]


FILES: dict[str, Callable[[], Vectors]] = {"batches": drawn, "answer-masks": masks}


def text(name: str) -> str:
    """One file of vectors, as it is stored."""
    return written(FILES[name]())


if __name__ == "__main__":
    SECOND.mkdir(exist_ok=True)
    for file in FILES:
        (SECOND / f"{file}.json").write_text(text(file))
