"""Decimals as fractions, and their random rounding. Run by the browser.

No binary floating-point number takes part: probabilities are exactly those that keep the mean.
"""

import math
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

Number = int | Fraction
_CONTEXT = Context(prec=400, Emin=-400, Emax=400, traps=[Inexact, InvalidOperation, Overflow])
"""Every float prints as a decimal within these; others would take memory without end."""
_DIGIT_BITS = 16
_MAX_DENOMINATOR = 1 << 63 - _DIGIT_BITS


def exact(value: object, what: str) -> Number:
    """An integer, a decimal or its text, exactly; a float as the decimal that it prints as: 0.1 is 1/10."""
    if isinstance(value, Fraction):
        return value
    try:
        if (
            not isinstance(value, int | float | str | Decimal | np.number)
            or not (text := str(value)).isascii()
        ):
            raise ValueError
        number = Fraction(_CONTEXT.create_decimal(text))
    except (ArithmeticError, ValueError):  # its message would contain the value
        raise NotDeclared(f"{what} is not a decimal number") from None
    return number.numerator if number.denominator == 1 else number


def fractions(column: ArrayLike, what: str) -> tuple[NDArray[Any], int]:
    """A column of numbers, exactly: integers over one common denominator."""
    given = np.asarray(column)
    if given.dtype.kind in "bi":
        return given.astype(np.int64), 1
    numbers = [exact(value, what) for value in given]
    denominator = math.lcm(*(number.denominator for number in numbers))
    numerators = [each.numerator * (denominator // each.denominator) for each in numbers]
    return np.array(numerators, object), denominator


def divide(numerators: NDArray[Any], denominator: int, rng: Randomness) -> NDArray[Any]:
    """Quotients, rounded up or down at random: their means are exact."""
    # Of smaller denominators, no intermediate result exceeds 63 bits.
    numerators = _narrowed(numerators) if denominator < _MAX_DENOMINATOR else numerators.astype(object)
    whole = numerators // denominator
    return _narrowed(whole + _below(numerators - whole * denominator, denominator, rng))


def whole(column: ArrayLike, what: str, rng: Randomness) -> NDArray[Any]:
    """Numbers rounded up or down at random, keeping their means; nothing is drawn if all are whole."""
    numerators, denominator = fractions(column, what)
    return _narrowed(numerators) if denominator == 1 else divide(numerators, denominator, rng)


def _narrowed(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers.astype(np.int64) if (np.abs(numbers) < 1 << 63).all() else numbers


def _below(rest: NDArray[Any], denominator: int, rng: Randomness) -> NDArray[np.bool_]:
    """Whether uniform numbers in [0, 1) are below rest / denominator: a word each, more if undecided."""
    words = rng.words(len(rest))
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        digits = (words >> np.uint64(shift) & np.uint64((1 << _DIGIT_BITS) - 1)).astype(rest.dtype)
        # 0 and the denominator are decided, and stay what they are.
        rest = np.clip((rest << _DIGIT_BITS) - digits * denominator, 0, denominator)
    below: NDArray[np.bool_] = rest == denominator
    undecided = np.flatnonzero(~below & (rest > 0))
    if undecided.size:
        below[undecided] = _below(rest[undecided], denominator, rng)
    return below
