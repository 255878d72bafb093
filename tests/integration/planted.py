"""Secrets that were planted, in every form in which somebody would print them; and finding them again."""

import base64
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

LEAST = 8
"""Letters of a form: a shorter one is found anywhere."""


class Needle(NamedTuple):
    """One form of a secret, and what it is."""

    name: str
    form: bytes


def octets(name: str, data: bytes) -> list[Needle]:
    """Raw, escaped, in hexadecimal, in base64 of both alphabets wherever it begins, and as numbers."""
    numbers = [mark.join(map(str, data)) for mark in (",", ", ", " ")]
    texts = [data.hex(), data.hex().upper(), data.hex(" "), repr(data)[2:-1], *numbers]
    coded = [form for skip in range(3) for form in _base64(data, skip)]
    return _needles(name, [data, *(each.encode() for each in texts), *coded])


def text(name: str, value: str) -> list[Needle]:
    """As it is, and as bytes."""
    return _needles(name, [value.encode(), value.encode("utf-16-le")]) + octets(name, value.encode())


def number(name: str, value: int) -> list[Needle]:
    """In digits, in hexadecimal, and as eight bytes of either order."""
    shown = [str(value), f"{value:_}", f"{value:,}", f"{value:x}", f"{value:X}"]
    both = [value.to_bytes(8, "little"), value.to_bytes(8, "big")]
    return _needles(name, [each.encode() for each in shown]) + [
        each for data in both for each in octets(name, data)
    ]


def numbers(name: str, values: np.ndarray) -> list[Needle]:
    """Each of an array of field elements."""
    return [each for value in values.ravel().tolist() if value > 1 << 32 for each in number(name, value)]


def found(needles: Iterable[Needle], said: bytes) -> set[str]:
    """What of them stands there."""
    return {each.name for each in needles if each.form in said}


def _needles(name: str, forms: Iterable[bytes]) -> list[Needle]:
    return [Needle(name, form) for form in dict.fromkeys(forms) if len(form) >= LEAST]


def _base64(data: bytes, skip: int) -> list[bytes]:
    """Of the whole groups of three, if the secret begins so many bytes behind the beginning of one."""
    whole = data[skip : skip + (len(data) - skip) // 3 * 3]
    return [base64.b64encode(whole), base64.urlsafe_b64encode(whole)]
