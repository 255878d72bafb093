"""Whether a report's secret numbers are all bits: the proof of browsers, and what helpers check of it.

Every secret is a list of numbers v_1 … v_M that have to be 0 or 1 (`bits` of a declaration). f is the
polynomial of degree M with f(0) = u, a random number, and f(i) = v_i; g = f (f - 1) has degree 2M and is 0 at
1 … M if and only if all are bits. The proof is u, g(0), g(M + 1), …, g(2M), shared as the secrets are. At one
secret point t, which follows from a key of the helpers and the report id, each helper publishes its shares of
f(t) and g(t), both linear in what it holds, with 0 for g(1) … g(M). The report is valid if f(t) (f(t) - 1) =
g(t).

A proof that was made before t was known holds with a probability of at most 2M / (p - 2M - 1) if some v_i is
no bit. f(t) is uniform because u is, and g(t) follows from it: nobody learns more, whatever other helpers do.
But only once: a second point of f says something about v, so a report has one t for good. Nor may what is
evaluated ever change under the same word for `checks` in a document: with another order of bits, other
weights or another derivation of t, a report that was checked before would get a second number.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.core.declared import Provable
from maskedlark.core.field import FieldArray, P
from maskedlark.core.sharing import ByteRows
from maskedlark.randomness import Randomness

KEY_BYTES = 32
"""Of the check key K, which all helpers of a document share, and nobody else knows."""
NUMBERS = 2
"""That a helper publishes per record: its shares of f(t) and g(t)."""
_DOMAIN = b"maskedlark v2 check"
_LIMB_BITS = 31
_LIMB = (1 << _LIMB_BITS) - 1
_CACHED, _FEWEST = 1 << 17, 1 << 10
"""Shares that are evaluated at a time stay in a core's cache, if they are of enough records."""


def prove(secrets: FieldArray, declared: Provable, rng: Randomness) -> FieldArray:
    """u, and g at 0, M + 1, …, 2M, of every record: (n, M + 2). Run by the browser."""
    bits = declared.bits(secrets)
    assert bits.size == 0 or 0 <= bits.min() <= bits.max() <= 1, "browsers lift secrets to bits"
    of_random, low, high = _extrapolation(declared.points())
    u = rng.below(P, len(bits))[:, None]
    # Sums of bits by limbs of 31 and 30 bits stay below 2^53, where float64 is exact.
    chosen = bits.astype(np.float64)
    lower, upper = (chosen @ low).astype(np.int64), (chosen @ high).astype(np.int64)
    of_bits = field.add(lower, field.shift(upper, _LIMB_BITS))
    f = np.concatenate([u, field.add(field.multiply(u, of_random), of_bits)], axis=1)
    return np.concatenate([u, _times_less_one(f)], axis=1)


def challenges(key: bytes, ids: ByteRows, points: int) -> FieldArray:
    """The point t of every report, uniform outside 0 … 2M to all who do not know the key. Run by helpers.

    It depends on nothing else: a check that is repeated, in whatever dataset, publishes the same numbers.
    """
    assert len(key) == KEY_BYTES
    return sharing.streams(_DOMAIN + key, ids, 1, 2 * points + 1)[:, 0]


def evaluate(shares: FieldArray, t: FieldArray, declared: Provable) -> FieldArray:
    """Our shares of f(t) and g(t), from all that we hold of each record: (n, 2). Run by helpers."""
    numbers = np.empty((len(shares), NUMBERS), np.int64)
    size = max(_FEWEST, _CACHED // declared.carried())
    for start in range(0, len(shares), size):
        block = slice(start, start + size)
        numbers[block] = _evaluated(shares[block], t[block], declared)
    return numbers


def _evaluated(shares: FieldArray, t: FieldArray, declared: Provable) -> FieldArray:
    """Lagrange's formula over the points 0 … M of f and 0 … 2M of g, without a division.

    With the weights w_j, and S_j = Σ_{i ≤ j} w_i y_i Π_{k ≤ j, k ≠ i} (t - k), S_j is
    S_{j-1} (t - j) + w_j y_j Π_{k < j} (t - k).
    """
    count, points = declared.secrets(), declared.points()
    f_values = np.ascontiguousarray(declared.bits(shares[:, :count]).T)
    u, *g_values = np.ascontiguousarray(shares[:, count:].T)
    f_weights, g_weights = (_weights(degree)[:, None] for degree in (points, 2 * points))
    product, state = (
        t,
        np.stack([t, field.multiply(g_weights[0], g_values[0]), field.multiply(f_weights[0], u)]),
    )
    for point in range(1, points + 1):  # where g is 0
        term = field.multiply(f_values[point - 1], field.multiply(f_weights[point], product))
        state = field.multiply(state, _minus(t, point))
        state[2] = field.add(state[2], term)
        product = state[0]
    f_sum, state = state[2], state[:2]
    for point in range(points + 1, 2 * points + 1):
        term = field.multiply(g_values[point - points], field.multiply(g_weights[point], product))
        state = field.multiply(state, _minus(t, point))
        state[1] = field.add(state[1], term)
        product = state[0]
    return np.stack([f_sum, state[1]], axis=1)


def valid(numbers: Sequence[FieldArray]) -> NDArray[np.bool_]:
    """Which records are valid, from what all helpers published of them: (n, 2) each. Run by each helper."""
    f, g = np.ascontiguousarray(sharing.combine(numbers).T)
    holds: NDArray[np.bool_] = _times_less_one(f) == g
    return holds


def _times_less_one(f: FieldArray) -> FieldArray:
    return field.multiply(f, _minus(f, 1))


def _minus(a: FieldArray, number: int) -> FieldArray:
    return field.subtract(a, np.array([number], np.int64))


@cache
def _weights(degree: int) -> FieldArray:
    """Lagrange's weights for the points 0 … degree: 1 / Π_{k ≠ i} (i - k)."""
    factorial = _factorials(degree)
    products = [factorial[i] * factorial[degree - i] * (-1) ** (degree - i) for i in range(degree + 1)]
    return np.array([pow(product, -1, P) for product in products], np.int64)


@cache
def _extrapolation(points: int) -> tuple[FieldArray, NDArray[np.float64], NDArray[np.float64]]:
    """How f at M + 1, …, 2M follows from f(0), and from f(1) … f(M): those factors in two limbs."""
    at, known = np.arange(points + 1, 2 * points + 1), np.arange(points + 1)
    factorial = _factorials(2 * points)
    inverses = np.array([0, *(pow(number, -1, P) for number in range(1, 2 * points + 1))], np.int64)
    # Lagrange's formula at x: w_i Π_k (x - k) / (x - i), with Π_k (x - k) = x! / (x - M - 1)!
    products = [factorial[x] * pow(factorial[x - points - 1], -1, P) % P for x in at.tolist()]
    factors = field.multiply(_weights(points), inverses[at[:, None] - known])
    factors = field.multiply(factors, np.array(products, np.int64)[:, None])
    of_bits = factors[:, 1:].T
    return factors[:, 0], (of_bits & _LIMB).astype(np.float64), (of_bits >> _LIMB_BITS).astype(np.float64)


def _factorials(most: int) -> list[int]:
    factorials = [1]
    for number in range(1, most + 1):
        factorials.append(factorials[-1] * number % P)
    return factorials
