"""What a simulation writes for its user: the document's settings, what the ad server knows, and two recipes.

Settings are made before any service starts, with defaults for the table's size. Decoys are public rows that
fakes are made of: features drawn from the ranges and categories of the encoder, which is public too, and
keys that many rows have.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import SessionCharge, batches_reach_k
from maskedlark.features.csv_file import to_csv
from maskedlark.ledger.budget import Account, EpsilonPair
from maskedlark.parameters.decoys import DECOYS, decoy_rows
from maskedlark.parameters.document import Document
from maskedlark.simulate.cluster import MAX_BUDGET
from maskedlark.simulate.errors import BadSimulation
from maskedlark.simulate.reporting import DATASETS
from maskedlark.simulate.users import Bounds, Users
from maskedlark.web import files
from maskedlark.wire.columns import Key

ENCODER, PEOPLE, MODEL = "encoder.json", "people.csv", "model.py"
RECIPE, TRAIN_RECIPE = "run.toml", "train.toml"
"""For `maskedlark fit`, and for `maskedlark train`."""
STEPS = 60
RATE, MAX_BATCH = 0.5, 10_000
_BUILD = '''"""The model that train.toml trains: change it as you like. `build` is called once."""

from torch import nn


def build() -> nn.Module:
    """A logistic regression. A network has nn.Linear, nn.ReLU, nn.Linear in the same Sequential."""
    model = nn.Sequential(nn.Linear({features}, 1))
    for parameter in model[-1].parameters():  # Of the last layer alone: a network would stay at 0.
        nn.init.zeros_(parameter)
    return model
'''
_BUILD_CENTRED = '''"""The model that train.toml trains: change it as you like. `build` is called once."""

from pathlib import Path

from torch import nn

from maskedlark.features import Encoder, csv_file
from maskedlark.training import centred

HERE = Path(__file__).parent


def build() -> nn.Module:
    """A logistic regression on centred rows. The first layer is fixed, and has a constant of its own."""
    rows = Encoder.load(HERE / "encoder.json").encode(csv_file.read_csv(HERE / "people.csv"))
    first = centred(rows)
    last = nn.Linear(first.out_features, 1)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(first, last)
'''
CENTRED_SCALE = 8.0
"""As `training.centring.SCALE`, without torch."""
_FIT = """# `maskedlark fit {path}` runs this; `--explain` says what it would cost and spends nothing.
adserver = "adserver.toml"
datasets = ["{dataset}"]
tag = "{tag}"
table = "people.csv" # what the ad server knows about everybody: no label
encoder = "encoder.json"
model = "logistic"
map = "auto" # chosen by the plan, without labels; coefficients of "columns" are the easiest to read
epsilon = {epsilon:g} # against everybody
out = "model.json"
"""
_TRAIN = """# `maskedlark train {path}` runs this; `--plan` says what it would cost and spends nothing.
adserver = "adserver.toml"
datasets = ["{dataset}"]
tag = "{tag}"
model = "model.py:build"
encoder = "encoder.json"
table = "people.csv" # what the ad server knows about everybody: no label
loss = "bce"
steps = {steps}
{batches} # held_out = 0.2 keeps a fifth out of all batches, for `evaluate --part held_out`
epsilon = {epsilon:g} # against the ad server alone; `--plan` shows it beside the one with all helpers but one
delta = {delta:g}
folder = "train"
out = "model.pt"

[optimizer]
name = "SGD"
lr = {lr:.2g} # for rows of this length and this much noise: `--plan` says if another ε or model wants less
momentum = 0.9

[scheduler] # lr falls to 0 over all steps, which averages noise out
name = "PolynomialLR"
"""
K, MIN_K = 100, 10
ENOUGH = 1000
"""From this many rows on, k is 100; below, a tenth of the rows."""
NOISE_FLOOR, EVALUATION_FLOOR = 2.0, 1.0
"""Counts of an evaluation are few numbers, each moved by 1: Laplace noise has a third of the error there."""
_UNHEARD = 1e-12
"""Times δ: rarer than what any session may fall below k by."""
FIT_PART, TRAIN_PART = 1 / 6, 1 / 6
"""What a fit and a run may cost, of all that training may: several runs find room, and so does their δ."""


@dataclass(frozen=True)
class Declared:
    """The settings that a user may choose."""

    k: int
    epsilon: float
    delta: float
    """The δ that all training sessions share; a source's whole budget has twice as much."""
    fake_rate: float
    psi: float | None = None
    """The bound on a gradient; None: `row_length` of the table."""
    centre: bool = False
    """Whether the model that is drafted centres its rows."""

    @property
    def training(self) -> EpsilonPair:
        """What training may cost, of all that a source may."""
        return EpsilonPair(self.epsilon * 0.75, min(MAX_BUDGET.epsilon, self.epsilon * 5))


def chosen(
    size: int,
    k: int | None,
    epsilon: float,
    fake_rate: float,
    delta: float | None = None,
    psi: float | None = None,
    centre: bool = False,
) -> Declared:
    """The settings, with k and δ from the number of users by default. Refuses what cannot be queried."""
    least = k if k is not None else K if size >= ENOUGH else max(MIN_K, size // 10)
    if size < least:
        raise BadSimulation(
            f"the table has {size} rows, fewer than k = {least}: nothing could be asked of them. Take a "
            "larger table, or play with a smaller k"
        )
    if not 0 < epsilon <= MAX_BUDGET.epsilon:
        raise BadSimulation(
            f"epsilon {epsilon:g}: helpers here allow more than 0, at most {MAX_BUDGET.epsilon:g}"
        )
    if not 0 <= fake_rate <= 1:
        raise BadSimulation(f"a rate of fakes is from 0 to 1, not {fake_rate:g}")
    if delta is not None and not 0 < delta <= MAX_BUDGET.delta:
        raise BadSimulation(f"delta {delta:g}: helpers here allow more than 0, at most {MAX_BUDGET.delta:g}")
    whole = 2 * min(1e-5, 10.0 ** math.floor(-1 - math.log10(max(size, 1)))) if delta is None else delta
    if psi is not None and not 1e-6 <= psi <= 1000:
        raise BadSimulation(f"psi {psi:g}: a bound on gradients is from 0.000001 to 1000")
    return Declared(least, epsilon, whole / 2, fake_rate, psi, centre)


def row_length(rows: NDArray[np.uint8], centre: bool = False) -> float:
    """The median of how long the gradient of a row can be, in a logistic regression, to two digits.

    An error is 1 at most, so that is the length of the row with the 1 of its intercept. ψ by default, as
    `training.gradient_bound` finds it for any network: shorter, and rare labels would be cut most of all.
    """
    numbers = rows.astype(np.float32) / 256
    if centre:
        numbers -= numbers.mean(axis=0)
    length = float(np.median(np.sqrt(1 + np.square(numbers).sum(axis=1))))
    return float(f"{CENTRED_SCALE * length if centre else length:.2g}")


def settings(users: Users, values: Mapping[str, Bounds], label: str | None, tag: str, said: Declared) -> str:
    """The TOML of `maskedlark parameters draft`, without origin and helpers."""
    both, decoys = 2 * said.delta, [*_keys(users, said.k)] if values else []
    parts = [
        f"keys = {_toml([*users.keys])}\nk = {said.k}\nfake_rate = {said.fake_rate}\nchecks = true\n"
        f"budget = {{epsilon = {said.epsilon}, delta = {both}}}\n"
    ]
    if users.encoder is not None:
        decoys += [
            f"{{tag = {_toml(tag)}, columns = {_toml(row.tobytes().hex())}}}"
            for row in decoy_rows(users.encoder)
        ]
        parts.append(
            f"training.adserver = {{epsilon = {said.training.adserver}, delta = {both}}}\n"
            f"training.coalition = {{epsilon = {said.training.coalition}, delta = {both}}}\n"
            f'mechanisms.moments = {{kind = "gaussian", noise_floor = {NOISE_FLOOR}}}\n'
            f'mechanisms.gradient = {{kind = "gaussian", noise_floor = {NOISE_FLOOR}}}\n'
            f'mechanisms.cells = {{kind = "laplace", noise_floor = {EVALUATION_FLOOR}}}\n'
        )
    if values:
        parts.append('mechanisms.sums = {kind = "laplace", noise_floor = 1.0}\n')
    parts.append("decoys = [\n" + "".join(f"    {each},\n" for each in decoys) + "]\n")
    if values:
        bounds = "".join(f"{_toml(name)} = [{low}, {high}]\n" for name, (low, high) in values.items())
        parts.append(f"[values]\n{bounds}")
    if users.encoder is not None:
        assert users.features is not None
        of = f", value = {_toml(label)}" if label in values else ""
        psi = row_length(users.features, said.centre) if said.psi is None else said.psi
        parts.append(
            f'[models.{_toml(tag)}]\ncolumns = [{{kind = "bytes", count = {len(users.encoder)}}}]\n'
            f'labels = [{{kind = "binary"{of}}}]\n'
            f'encoder = "{users.encoder.digest.hex()}"\ngradient_bound = {psi}\n'
        )
    return "".join(parts)


def _keys(users: Users, k: int) -> Iterator[str]:
    """Keys that many rows have, which reveal nothing about anyone."""
    rows = Counter(zip(*users.keys.values(), strict=True)) if users.keys else Counter({(): users.size})
    common: list[tuple[Key, ...]] = [row for row, count in rows.most_common(DECOYS) if count >= k]
    for row in common or [("other",) * len(users.keys)]:
        entries = [f"{_toml(name)} = {_toml(entry)}" for name, entry in zip(users.keys, row, strict=True)]
        yield f"{{keys = {{{', '.join(entries)}}}}}"


def _toml(value: object) -> str:
    """A text, number or list in TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_files(
    folder: Path, document: Document, tag: str, records: int, users: Users, centre: bool = False
) -> None:
    """Write the missing files; existing ones, which the user may have changed, stay."""
    assert document.training is not None
    assert users.encoder is not None
    assert users.features is not None
    ceiling, session = document.training.adserver.epsilon, Account(document).default_session_delta(tag)
    rate, length = min(RATE, MAX_BATCH / records), row_length(users.features, centre)
    both = {"dataset": DATASETS[Purpose.TRAIN], "tag": tag}
    written = {
        ENCODER: users.encoder.to_json(),
        PEOPLE: to_csv(users.known),
        RECIPE: _FIT.format(path=quote(str(folder / RECIPE)), epsilon=ceiling * FIT_PART, **both),
        MODEL: _BUILD_CENTRED if centre else _BUILD.format(features=document.trained(tag).features),
        TRAIN_RECIPE: _TRAIN.format(
            path=quote(str(folder / TRAIN_RECIPE)),
            steps=STEPS,
            batches=_batches(records, document.k, rate, session),
            lr=_learning_rate(document, users.features, rate, records, ceiling * TRAIN_PART, session)
            / length**2,
            epsilon=ceiling * TRAIN_PART,
            delta=session,
            **both,
        ),
    }
    for name, text in written.items():
        if not (folder / name).exists():
            files.write(folder / name, text.encode())


def _batches(records: int, k: int, rate: float, delta: float) -> str:
    """Batches that hardly ever fall below k; all records where there are too few for that."""
    charge = SessionCharge("gaussian", 4.0, rate, STEPS, STEPS, delta)
    # Chernoff's bound first: the exact one loads a library of 80 MB, and large tables are far from it.
    if _chance_below(k, records, rate) <= _UNHEARD * delta or batches_reach_k(charge, records, k, 0.0):
        return f"sampling_rate = {rate:.3g}"
    return 'sampling = "whole"'


def _chance_below(k: int, records: int, rate: float) -> float:
    """More than the chance that any of all batches has fewer than k records."""
    share = k / records
    if share >= rate:
        return 1.0
    apart = share * math.log(share / rate) + (1 - share) * math.log((1 - share) / (1 - rate))
    return STEPS * math.exp(-records * apart)


def _learning_rate(
    document: Document, rows: NDArray[np.uint8], rate: float, records: int, epsilon: float, delta: float
) -> float:
    """For rows of length 1: as high as these allow, and lower where noise would carry the weights away.

    The constants were found on three tables at ε = 0.8 and 2. The noise is about what a plan will say.
    """
    noise = rate * math.sqrt(2 * STEPS * math.log(1 / delta)) / epsilon
    signal = rate * records / (2 * noise * math.sqrt(len(document.helpers) * (rows.shape[1] + 1)))
    return min(16.0, max(2.0, 0.4 * signal))
