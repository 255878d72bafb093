"""The table e^-x in integers, for sigmoid, tanh, ELU and softmax: the same on every machine. Run by helpers.

Libraries' exp, log and tanh are not used: they differ in the last place. The entries are the exact values
rounded to the nearest integer; integer arithmetic computes them far more precisely than they are rounded.
"""

from functools import cache

INDEX_BITS = 8
"""The table's step: x in units of 2^-8."""
ENTRIES = 4096
"""x from 0 to 16; beyond it the last entry is used."""
EXP_BITS = 30
"""An entry is e^-x in units of 2^-30."""
PROBABILITY_BITS = 20
"""Probabilities are in units of 2^-20."""

_GUARD = 128


@cache
def exponential() -> tuple[int, ...]:
    """EXP[t] = e^(-t / 256) in units of 2^-30, rounded to the nearest, for t = 0 … 4095."""
    ratio = _one_step()
    half = 1 << (_GUARD - EXP_BITS - 1)
    entries, power = [], 1 << _GUARD
    for _ in range(ENTRIES):
        entries.append((power + half) >> (_GUARD - EXP_BITS))
        power = power * ratio >> _GUARD
    return tuple(entries)


def _one_step() -> int:
    """e^(-1 / 256) with 128 fractional bits, from its series, whose terms shrink by 2^8 and more."""
    total, term, n = 0, 1 << _GUARD, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term // (n << INDEX_BITS)
    return total


@cache
def sigmoid() -> tuple[int, ...]:
    """SIGMOID[t + 4095] = 1 / (1 + e^(-t / 256)) in units of 2^-20, for t = -4095 … 4095.

    The upper half is the table's quotient rounded to the nearest; the lower half mirrors it.
    """
    one = 1 << EXP_BITS
    upper = [
        ((one << (PROBABILITY_BITS + 1)) + one + entry) // (2 * (one + entry)) for entry in exponential()
    ]
    lower = [(1 << PROBABILITY_BITS) - entry for entry in upper[:0:-1]]
    return tuple(lower + upper)
