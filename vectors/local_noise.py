"""Vectors of the noise that browsers add: feature noise and randomised response.

The cut points are the twin's, which knows them to 160 digits; what is drawn past them is the package's.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from maskedlark.core import local_dp
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import FeatureNoise, RandomisedResponse
from tests.twins import local_dp as twin
from vectors.good import Recording, Vectors

WORD = 64
LISTED = (-255, -16, -1, 0, 15, 254)
"""The cut points that vectors show."""


def noise() -> Vectors:
    """Bytes with feature noise: words at random, next to a cut point, and equal to one."""
    return list(_noise())


def _noise() -> Iterator[dict[str, Any]]:
    for epsilon, sensitivity in (
        (1.0, 255.0),
        (2.0, 16.0),
        (0.1, 1.0),
        (8.0, 2.5),
        (1e-6, 255.0),
        (1e6, 1.0),
    ):
        given = FeatureNoise(epsilon, sensitivity)
        yield _noised("at random", given, "0001407f80c0feff", [])
    for epsilon, sensitivity in ((2.0, 16.0), (0.1, 1.0)):
        given = FeatureNoise(epsilon, sensitivity)
        for n in (-16, 0):
            at = laplace_cut(given, n, WORD)
            yield _noised(f"next to cut point {n}", given, "8080", [at - 1, at + 1])
            first, second, third = words_of(laplace_cut(given, n, 3 * WORD))
            # A word for each byte; then the further words of the first, the second, and two of the third.
            further = [second - 1, second + 1, second, third + 1]
            yield _noised(f"equal to cut point {n}", given, "808080", [first] * 3 + further)


def _noised(name: str, given: FeatureNoise, data: str, words: Sequence[int]) -> dict[str, Any]:
    rng = Recording(f"noise {given} {name}", words)
    rows = np.frombuffer(bytes.fromhex(data), np.uint8)[None]
    noisy = local_dp.features(rows, given, rng).tobytes().hex()
    cuts = {str(n): str(laplace_cut(given, n, WORD)) for n in LISTED}
    said = {"name": name, "epsilon": given.epsilon, "sensitivity": given.sensitivity, "cuts": cuts}
    return {**said, "bytes": data, "noisy": noisy, "drawn": rng.drawn.hex()}


def laplace_cut(given: FeatureNoise, n: int, bits: int) -> int:
    """2^bits · P(rounded noise <= n), rounded down."""
    if n >= 0:  # By symmetry: 1 - tail would lose a small tail's digits.
        return (1 << bits) - 1 - laplace_cut(given, -1 - n, bits)
    with localcontext(prec=twin.DIGITS + 20):
        scale = Decimal(given.sensitivity) / Decimal(given.epsilon)
        return int(twin.laplace_cdf(Decimal(2 * n + 1) / 2, scale) * (1 << bits))


def response() -> Vectors:
    """Labels after randomised response: words at random, next to the cut point, and equal to it."""
    return list(_response())


def _response() -> Iterator[dict[str, Any]]:
    for space in (LabelSpace.binary(), LabelSpace.integers(-3, 3)):
        for epsilon in (0.1, 1.0, 30.0):
            at = response_cut(epsilon, len(space), WORD)
            first, second, third = words_of(response_cut(epsilon, len(space), 3 * WORD))
            for name, words in (
                ("at random", []),
                ("below the cut point", [at - 1]),
                ("over the cut point", [at + 1]),
                ("equal, then below", [first, second - 1]),
                ("equal, then over", [first, second + 1]),
                ("equal twice, then over", [first, second, third + 1]),
            ):
                rng = Recording(f"response {len(space)} {epsilon} {name}", words)
                [given] = local_dp.labels([1], space, RandomisedResponse(epsilon), rng).tolist()
                said = {"name": name, "epsilon": epsilon, "space": space.values, "cut": str(at), "label": 1}
                yield {**said, "response": given, "drawn": rng.drawn.hex()}


def response_cut(epsilon: float, size: int, bits: int) -> int:
    """2^bits · k / (e^ε + k - 1), rounded down."""
    with localcontext(prec=twin.DIGITS + 20):
        return int(size * twin.response(0, size, epsilon)[1] * (1 << bits))


def words_of(number: int) -> tuple[int, int, int]:
    """Of a number of 192 bits, the highest first."""
    mask = (1 << WORD) - 1
    return number >> 2 * WORD, number >> WORD & mask, number & mask
