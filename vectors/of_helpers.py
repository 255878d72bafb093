"""Make the test vectors of what helpers have in common, version 2: `python -m vectors.of_helpers`.

Batches, masks, moments and cells have to be the same to the bit at every helper, whoever wrote it.
"""

import json
from collections.abc import Callable, Sequence

import numpy as np

from maskedlark.core import batches, field, sharing
from maskedlark.core.candidates import All, CandidatePolicy, Pair
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import cells as exact
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Identity, Relu, Tanh
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import CellsQuery, CellTable, DescribedTable
from maskedlark.functions.function import Part
from maskedlark.functions.moments import MomentsQuery
from maskedlark.randomness import FixedRandomness
from maskedlark.release import zero_sum
from vectors import SECOND, check_keys, check_messages, written
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
        place = batches.partition(SEED, "m", slot, count, records)
        parts = [np.flatnonzero(place == number).tolist() for number in range(count)]
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


_LOSSES: tuple[Loss, ...] = (BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
_SPACES = (LabelSpace.binary(), LabelSpace.categorical(3), LabelSpace.integers(-2, 3))


def moments() -> Vectors:
    """A helper's share of moments, from its masks, before noise: features, and outputs of hidden layers."""
    one = Layer(Linear("w0", "b0", 4, 1))
    bare = Layer(Linear("w0", None, 4, 5), dropout=Dropout(128))
    deep = (
        Layer(Linear("w0", "b0", 4, 3)),
        Layer(Linear("w1", "b1", 3, 2, transposed=True), Tanh()),
        Layer(Linear("w2", "b2", 2, 5), Identity()),
    )
    return [
        _moments(2, Network((one,), _LOSSES[:1]), (), 0.75, Norm.L2, 16, All()),
        _moments(3, Network((one,), _LOSSES[2:]), (), 1000.0, Norm.L1, 21, All()),
        _moments(2, Network((bare,), _LOSSES), (), 1.0, Norm.L2, 4, Pair()),
        _moments(3, Network(deep, _LOSSES), (8, 6), 1.5, Norm.L2, 20, All()),
        _moments(2, Network(deep, _LOSSES), (8, 3), 0.4, Norm.L1, 16, Pair()),
    ]


def _moments(
    helpers: int,
    network: Network,
    hidden: tuple[int, ...],
    clip: float,
    norm: Norm,
    fraction: int,
    policy: CandidatePolicy,
) -> dict[str, object]:
    rng, last = (
        FixedRandomness(f"moments of {helpers}, {norm}, {fraction}".encode()),
        network.layers[-1].linear,
    )
    values = rng.below(255, network.size).astype(np.int16) - 127
    values[network.size - last.outputs * (last.inputs + (last.bias is not None)) :] = 0
    sent = Quantised(values, (6,) * len(network.parameters), hidden)
    spaces = tuple(_SPACES[_LOSSES.index(loss)] for loss in network.losses)
    records = _records(helpers, 5, Model("m", (Bytes(4),), spaces, policy), rng)
    phi = Representation(network, sent, clip, norm, fraction)
    query = MomentsQuery("m", network, sent, phi, spaces, tuple(range(len(spaces))))
    answers = [query.share_of(own) for own in records]
    rows = phi.rows(records[0].features)
    return {
        "model": model.describe(network, fraction).model_dump(mode="json"),
        "weights": weights.encode(sent).hex(),
        "clip": clip,
        "norm": str(norm),
        "features": [row.tobytes().hex() for row in records[0].features],
        "numbers": rows.numbers.tolist(),
        "factors": rows.factors.tolist(),
        **_written(records, answers),
    }


def _records(helpers: int, count: int, declared: Model, rng: FixedRandomness) -> list[TrainingRecords]:
    """What each helper holds: features of 0, of 255 and of anything; the fourth record is a fake."""
    features = sharing.random_rows(count, declared.features, rng).copy()
    features[:2] = [[0], [255]]
    labels = [np.array(space.values)[rng.below(len(space), count)] for space in declared.labels]
    shown, secrets = declared.mask(labels, np.arange(count) != 3, rng)
    ids = sharing.random_rows(count, 16, rng)
    carried = sharing.split(secrets, ids, Purpose.TRAIN, helpers, rng).carried()
    return [
        TrainingRecords(
            ids,
            features,
            tuple(shown),
            sharing.recover(own, ids, Purpose.TRAIN, place, secrets.shape[1]),
        )
        for place, own in enumerate(carried)
    ]


def _written(
    records: Sequence[TrainingRecords], answers: Sequence[Sequence[field.FieldArray]]
) -> dict[str, object]:
    """Masks, each helper's columns of numbers, and what they add up to."""
    return {
        "candidates": [column.tolist() for column in records[0].candidates],
        "shares": [[[str(number) for number in row] for row in own.shares] for own in records],
        "answers": [[[str(number) for number in column] for column in own] for own in answers],
        "sums": [
            [str(number) for number in field.to_signed(sharing.combine(list(column)))]
            for column in zip(*answers, strict=True)
        ],
    }


def cells() -> Vectors:
    """A helper's share of labels by cell, from its masks, before noise: every kind, ties, and edges hit."""
    one = Network((Layer(Linear("w0", None, 4, 3)),), ())
    deep = (Layer(Linear("w0", "b0", 4, 3)), Layer(Linear("w1", "b1", 3, 5), Relu()))
    largest: dict[str, object] = {"kind": "largest", "first": 0, "count": 3}
    hashed: dict[str, object] = {"kind": "hash", "features": [0, 3], "count": 4}
    # The first two outputs of `one` are equal, and a row of 255 is 255 / 256 at each.
    tie = Quantised(np.array([64, 0, 0, 0] * 2 + [0, 64, 0, 0], np.int16), (6,), ())
    edges: dict[str, object] = {"kind": "buckets", "output": 0, "edges": [0.25, 255 / 256, 1.0]}
    rng = FixedRandomness(b"weights of cells")
    made = Network(deep, _LOSSES)
    sent = Quantised(rng.below(255, made.size).astype(np.int16) - 127, (6,) * 4, (6,))
    wide = Quantised(rng.below(2000, made.size).astype(np.int16) - 1000, (9,) * 4, (6,), 16)
    some: dict[str, object] = {"kind": "buckets", "output": 4, "edges": [-2.5, 0.0, 1e-9, 3.0]}
    own = [{"label": 0, "cells": some, "ones": True}, {"label": 1, "cells": largest | {"first": 1}}]
    return [
        _cells(2, one, tie, [{"cells": largest}, {"cells": edges}, {"cells": edges, "ones": True}], All()),
        _cells(3, None, None, [{"cells": hashed}, {"label": 1, "cells": hashed | {"count": 7}}], All()),
        _cells(3, made, sent, [*own, {"label": 2, "cells": hashed}], All()),
        _cells(2, made, wide, [*own, {"label": 2, "cells": some}], Pair()),
    ]


def _cells(
    helpers: int,
    network: Network | None,
    sent: Quantised | None,
    asked: list[dict[str, object]],
    policy: CandidatePolicy,
) -> dict[str, object]:
    rng = FixedRandomness(f"cells of {helpers}, {len(asked)}, {policy}".encode())
    records = _records(helpers, 8, Model("m", (Bytes(4),), _SPACES, policy), rng)
    described = [DescribedTable.model_validate_json(json.dumps(table)) for table in asked]
    tables = tuple(
        CellTable(each.label, _SPACES[each.label], each.cells.partition(), each.ones) for each in described
    )
    query = CellsQuery("m", network, sent, tables, Part("training", 0.5))
    answers = [[table.shares[0][0] for table in query.share([own], 1)] for own in records]
    found = exact.cells(network, sent, records[0].features, [each.partition for each in tables])
    return {
        "model": None if network is None else model.describe(network).model_dump(mode="json"),
        "weights": None if sent is None else weights.encode(sent).hex(),
        "spaces": [space.values for space in _SPACES],
        "tables": [each.model_dump(mode="json") for each in described],
        "features": [row.tobytes().hex() for row in records[0].features],
        "cells": [each.tolist() for each in found],
        **_written(records, answers),
    }


FILES: dict[str, Callable[[], Vectors]] = {
    "batches": drawn,
    "answer-masks": masks,
    "moments": moments,
    "cells": cells,
    "check-keys": check_keys.vectors,
    "check-messages": check_messages.vectors,
}


def text(name: str) -> str:
    """One file of vectors, as it is stored."""
    return written(FILES[name]())


if __name__ == "__main__":
    SECOND.mkdir(exist_ok=True)
    for file in FILES:
        (SECOND / f"{file}.json").write_text(text(file))
