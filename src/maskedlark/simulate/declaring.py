"""What a simulated ad server declares in public about a crowd, by defaults that suit its size.

Run before any service is started. Decoys are public rows that fakes are made of: made-up people, drawn from
the ranges and categories of the encoder, which is public too; and keys that many rows have.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.features.encoder import Encoder
from maskedlark.features.kinds import BooleanColumn, Fitted, OneHotColumn
from maskedlark.features.scaled import ScaledColumn
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.simulate.crowd import Bounds, Crowd
from maskedlark.simulate.errors import BadScene
from maskedlark.simulate.stage import MOST
from maskedlark.wire.columns import Key

K, LEAST_K = 100, 10
ENOUGH = 1000
"""From so many rows on, k is 100; of fewer it is a tenth."""
DECOYS = 8
"""At most, of each purpose."""
NOISE_FLOOR = 2.0
"""Of training: an evaluation that names no noise gets this, and leaves something of the budget."""


@dataclass(frozen=True)
class Declared:
    """The few settings that a user may want to choose."""

    k: int
    epsilon: float
    delta: float
    """Of a training session; a source's whole budget has twice as much."""
    fake_rate: float

    def check(self, size: int) -> None:
        """Refuse what cannot be asked, or what the helpers of a simulation do not allow."""
        if size < self.k:
            raise BadScene(
                f"the table has {size} rows, fewer than k = {self.k}: nothing could be asked of them. Take a "
                "larger table, or play with a smaller k"
            )
        if not 0 < self.epsilon <= MOST.epsilon:
            raise BadScene(
                f"epsilon = {self.epsilon:g}: helpers here allow more than 0, at most {MOST.epsilon:g}"
            )
        if not 0 <= self.fake_rate <= 1:
            raise BadScene(f"a rate of fakes is from 0 to 1, not {self.fake_rate:g}")


def chosen(size: int, k: int | None, epsilon: float, fake_rate: float) -> Declared:
    """What is declared, k and δ by the size of the crowd where they are not given."""
    found = k if k is not None else K if size >= ENOUGH else max(LEAST_K, size // 10)
    delta = min(1e-5, 10.0 ** math.floor(-1 - math.log10(max(size, 1))))
    made = Declared(found, epsilon, delta, fake_rate)
    made.check(size)
    return made


def settings(crowd: Crowd, values: Mapping[str, Bounds], label: str | None, tag: str, said: Declared) -> str:
    """The TOML of `maskedlark parameters draft`, without origin and helpers."""
    both, decoys = 2 * said.delta, [*_keys(crowd, said.k)] if values else []
    parts = [
        f"keys = {_toml([*crowd.keys])}\nk = {said.k}\nfake_rate = {said.fake_rate}\n"
        f"budget = {{epsilon = {said.epsilon}, delta = {both}}}\n"
    ]
    if crowd.encoder is not None:
        decoys += [
            f"{{tag = {_toml(tag)}, features = {_toml(row.tobytes().hex())}}}"
            for row in made_up(crowd.encoder)
        ]
        parts.append(
            f"training.adserver = {{epsilon = {said.epsilon * 0.75}, delta = {both}}}\n"
            f"training.coalition = {{epsilon = {min(MOST.epsilon, said.epsilon * 5)}, delta = {both}}}\n"
            f'mechanisms.train = {{kind = "gaussian", noise_floor = {NOISE_FLOOR}}}\n'
        )
    if values:
        parts.append('mechanisms.aggregate = {kind = "laplace", noise_floor = 1.0}\n')
    parts.append("decoys = [\n" + "".join(f"    {each},\n" for each in decoys) + "]\n")
    if values:
        bounds = "".join(f"{_toml(name)} = [{low}, {high}]\n" for name, (low, high) in values.items())
        parts.append(f"[values]\n{bounds}")
    if crowd.encoder is not None:
        of = f", of = {_toml(label)}" if label in values else ""
        parts.append(
            f'[models.{_toml(tag)}]\nfeatures = {len(crowd.encoder)}\nlabels = [{{kind = "binary"{of}}}]\n'
        )
    return "".join(parts)


def _keys(crowd: Crowd, k: int) -> list[str]:
    """What many rows have: it says nothing of anybody."""
    rows = Counter(zip(*crowd.keys.values(), strict=True)) if crowd.keys else Counter({(): crowd.size})
    common: list[tuple[Key, ...]] = [row for row, count in rows.most_common(DECOYS) if count >= k]
    return [_decoy([*crowd.keys], row) for row in common or [("other",) * len(crowd.keys)]]


def _decoy(names: Sequence[str], row: Sequence[Key]) -> str:
    entries = [f"{_toml(name)} = {_toml(entry)}" for name, entry in zip(names, row, strict=True)]
    return f"{{keys = {{{', '.join(entries)}}}}}"


def made_up(encoder: Encoder) -> NDArray[np.uint8]:
    """Rows of nobody: the same for the same encoder."""
    rng = FixedRandomness(encoder.to_json().encode())
    rows = encoder.encode({fitted.name: _cells(fitted, rng) for fitted in encoder.columns})
    return np.unique(rows, axis=0)


def _cells(fitted: Fitted, rng: Randomness) -> list[Any]:
    """A column of what such a column may hold."""
    drawn = rng.unit(DECOYS).tolist()
    match fitted:
        case ScaledColumn():
            return [fitted.low + each * (fitted.high - fitted.low) for each in drawn]
        case OneHotColumn():
            known = fitted.categories or ("another",)
            return [known[int(each * len(known))] for each in drawn]
        case BooleanColumn():
            return [each < 0.5 for each in drawn]
        case _:
            return [f"made up {place}" for place in range(DECOYS)]


def _toml(value: object) -> str:
    """A text, number or list as TOML has it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
