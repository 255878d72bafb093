"""F_p in Python integers."""

from collections.abc import Sequence

P = 2**61 - 1


def add(a: int, b: int) -> int:
    return (a + b) % P


def subtract(a: int, b: int) -> int:
    return (a - b) % P


def multiply(a: int, b: int) -> int:
    return a * b % P


def total(elements: Sequence[int]) -> int:
    return sum(elements) % P


def lift(x: int) -> int:
    return x % P


def lower(a: int) -> int:
    return a if a <= P // 2 else a - P
