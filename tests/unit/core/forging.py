"""Records whose secrets are no bits, or whose proof is not theirs, as a browser would forge them.

Each takes records that are valid, (n, secrets), and gives them back forged, with a proof.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from maskedlark.core import field
from maskedlark.core.declared import Measure, Model
from maskedlark.core.field import FieldArray, P
from maskedlark.randomness import Randomness
from tests.twins import validity as twin
from tests.unit.core import polynomials

Declared = Measure | Model
Forger = Callable[[FieldArray, Declared, Randomness], FieldArray]
GUESSES = 10**6


@cache
def _through(points: tuple[int, ...], at: tuple[int, ...]) -> FieldArray:
    """How a polynomial through some points is at others: (points, at)."""
    units = np.eye(len(points), dtype=int).tolist()
    return np.array([[twin.at(points, unit, x) for x in at] for unit in units], np.int64)


def interpolated(values: FieldArray, points: tuple[int, ...], at: tuple[int, ...]) -> FieldArray:
    factors = _through(points, at)
    return field.total(field.multiply(values[:, :, None], factors[None]), 1)


def sent_at(m: int) -> tuple[int, ...]:
    """Where a proof states g."""
    return (0, *range(m + 1, 2 * m + 1))


def product(numbers: FieldArray, u: FieldArray, at: tuple[int, ...]) -> FieldArray:
    """f (f - 1) at these points, of any numbers."""
    m = numbers.shape[1]
    f = interpolated(np.concatenate([u, numbers], axis=1), tuple(range(m + 1)), at)
    return field.multiply(f, field.subtract(f, np.ones(1, np.int64)))


def with_proof(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    """What an honest browser would send, of any numbers: g is what f makes it where it is sent."""
    numbers, u = declared.bits(secrets), rng.below(P, len(secrets))[:, None]
    return np.concatenate([secrets, u, product(numbers, u, sent_at(declared.points()))], axis=1)


def meeting(secrets: FieldArray, declared: Declared, rng: Randomness, guesses: tuple[int, ...]) -> FieldArray:
    """A proof that holds at M + 1 guesses of t, the most that M + 1 numbers can: adapted to u and all."""
    m, numbers, u = declared.points(), declared.bits(secrets), rng.below(P, len(secrets))[:, None]
    assert len(guesses) == m + 1
    wrong = field.multiply(numbers, field.subtract(numbers, np.ones(1, np.int64)))
    # What f (f - 1) and the g that is sent differ by: 0 at the guesses, and as it has to be at 1 … M.
    known = np.concatenate([wrong, np.zeros((len(secrets), m + 1), np.int64)], axis=1)
    difference = interpolated(known, (*range(1, m + 1), *guesses), sent_at(m))
    g = field.subtract(product(numbers, u, sent_at(m)), difference)
    return np.concatenate([secrets, u, g], axis=1)


def point_of(share: FieldArray, published: FieldArray, declared: Declared) -> int:
    """Where a report is checked, as found by whoever knows one helper's share and what it published of it.

    Both polynomials of that helper, less its numbers, are 0 at t: all others of their zeros differ.
    """
    m, (u, *g_values) = declared.points(), share[declared.secrets() :].tolist()
    bits = declared.bits(share[None, : declared.secrets()])[0].tolist()
    f = polynomials.through(range(m + 1), [u, *bits])
    g = polynomials.through(range(2 * m + 1), [g_values[0], *[0] * m, *g_values[1:]])
    f_at, g_at = published.tolist()
    common = polynomials.common([(f[0] - f_at) % P, *f[1:]], [(g[0] - g_at) % P, *g[1:]])
    assert len(common) == 2, "t - x"
    return -common[0] * pow(common[1], -1, P) % P


def guessing(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    spoilt = secret(0, 5)(secrets, declared, rng)[:, : declared.secrets()]
    return meeting(spoilt, declared, rng, tuple(range(GUESSES, GUESSES + declared.points() + 1)))


def secret(place: int, number: int) -> Forger:
    """Another number among the secrets, with the proof as it would be."""

    def forge(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
        forged = secrets.copy()
        forged[:, place] = number % P
        return with_proof(forged, declared, rng)

    return forge


def two_hot(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    forged = np.zeros_like(secrets)
    forged[:, :2] = 1
    return with_proof(forged, declared, rng)


def cancelling(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    """Masks that sum up to 1, and are none."""
    forged = np.zeros_like(secrets)
    forged[:, 0], forged[:, 1] = 5, P - 4
    return with_proof(forged, declared, rng)


def proof_at(place: int | None) -> Forger:
    """Another number in a valid record's proof: of u (0), of g, or of all g."""

    def forge(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
        forged = with_proof(secrets, declared, rng)
        proof = np.arange(declared.secrets(), declared.carried())
        chosen = proof[1:] if place is None else proof[[place]]
        moved = 1 + rng.below(P - 1, len(forged) * len(chosen)).reshape(len(forged), -1)
        forged[:, chosen] = field.add(forged[:, chosen], moved)
        return forged

    return forge


def of_another(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    """A valid record with the proof of the same secrets in another report, but its own u."""
    forged, other = with_proof(secrets, declared, rng), with_proof(secrets, declared, rng)
    forged[:, declared.secrets() + 1 :] = other[:, declared.secrets() + 1 :]
    return forged


def without_proof(secrets: FieldArray, declared: Declared, rng: Randomness) -> FieldArray:
    """A secret of 5, and zeros for a proof."""
    forged = secret(0, 5)(secrets, declared, rng)
    forged[:, declared.secrets() :] = 0
    return forged


FORGED: dict[str, Forger] = {
    "a billion": secret(1, 10**9),
    "-1": secret(0, -1),
    "2": secret(0, 2),
    "a mask or count of 5": secret(0, 5),
    "the last of -1": secret(-1, -1),
    "an inverse of 2": secret(1, (P + 1) // 2),
    "forged u": proof_at(0),
    "forged g(0)": proof_at(1),
    "forged g(M + 1)": proof_at(2),
    "forged g(2M)": proof_at(-1),
    "forged g at all points": proof_at(None),
    "g of another u": of_another,
    "no proof": without_proof,
    "adapted to guesses of t": guessing,
}
OF_LABELS: dict[str, Forger] = {"two hot labels": two_hot, "masks that cancel": cancelling}
