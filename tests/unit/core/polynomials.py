"""Polynomials over the field in plain integers, lowest coefficient first: what an attacker computes."""

from collections.abc import Sequence

from maskedlark.core.field import P

Polynomial = list[int]


def through(points: Sequence[int], values: Sequence[int]) -> Polynomial:
    """The coefficients of the polynomial of least degree with these values."""
    total = [0] * len(points)
    for i, value in zip(points, values, strict=True):
        term = [value % P]
        for k in points:
            if k != i:
                scale = pow(i - k, -1, P)
                term = [
                    (low - k * high) * scale % P for low, high in zip([0, *term], [*term, 0], strict=True)
                ]
        total = [(one + other) % P for one, other in zip(total, term, strict=True)]
    return total


def common(one: Polynomial, other: Polynomial) -> Polynomial:
    """A greatest common divisor, by Euclid."""
    one, other = _trimmed(one), _trimmed(other)
    while other:
        one, other = other, _remainder(one, other)
    return one


def _remainder(number: Polynomial, divisor: Polynomial) -> Polynomial:
    left, scale = list(number), pow(divisor[-1], -1, P)
    while len(left) >= len(divisor):
        factor, shift = left[-1] * scale % P, len(left) - len(divisor)
        for place, coefficient in enumerate(divisor):
            left[place + shift] = (left[place + shift] - factor * coefficient) % P
        left = _trimmed(left[:-1])
    return left


def _trimmed(number: Polynomial) -> Polynomial:
    while number and number[-1] == 0:
        number = number[:-1]
    return number
