"""Mutations of messages: of their bytes, and of the tree that JSON spells.

A byte fuzzer seldom gets past the first check of a strict format. So half of the mutations take a message
apart, change one place of its tree as a hostile sender would, and write it again in its right form.
"""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.fuzz.trees import UNWRITABLE, Tree, if_whole, tree_of

NUMBERS = [0, 1, 2, 23, 24, 127, 128, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]
NUMBERS += [1 << 53, (1 << 61) - 2, (1 << 61) - 1, 1 << 61, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NUMBERS += [-1, -24, -25, -(1 << 31), -(1 << 63), -(1 << 64)]
"""Where ranges, lengths, the field and machine words end."""
TEXTS = [
    "",
    "a",
    "\0",
    "ads.example",
    "\u2028",
    "é" * 40,
    "x" * 65,
    "x" * 5000,
    "../../etc",
    "null",
    "0" * 64,
]
TEXTS += ["f" * 64, "00" * 64, "0" * 32, "train", "aggregate", "helper-1", "A" * 254, "%00", "\n", "e\u0301"]
ODD: list[Any] = [None, True, False, 0.5, 1e308, 5e-324, -0.0, [], {}, [[]], [None] * 3]
TOKENS = [b"\0", b"\xff" * 4, b"\x00" * 8, b"{}", b"[]", b'"', b"\\ud800", b"\\u0000", b"NaN", b"-Infinity"]
TOKENS += [b"1e999", b"-0", b"null", b",", b":", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1b", b"\x9f", b"\xbf"]
TOKENS += [
    b"\xf9\x7e\x00",
    b"\xc2\x40",
    b"\xf6",
    b"\x5f",
    b"\x7f",
    b"9" * 5000,
    b"=",
    b"\r\n",
    b"\n[a]\n",
    b"0x",
]
TOKENS += [
    b"'''",
    b"1979-05-27",
    b"[" * 1200,
    b'{"a":' * 1200,
    b"\x81" * 1200,
    b"[[" * 60_000,
    b"0xf" + b"f" * 5000,
]
_NESTS = [5, 6, 7, 40, 200, 330, 480, 900, 990, 1100]
"""Deeper than a message, and around where one parser or another gives up."""


def mutate(data: bytes, others: Sequence[bytes], rng: Random, form: Tree | None = None) -> bytes:
    """One hostile input. The same generator makes the same one. A form is for what is not JSON."""
    tree = None
    if rng.random() < 0.6 and len(data) < 20_000:
        tree = if_whole(form, data) if form else tree_of(data)
    if tree is not None:
        return _in_tree(data, tree, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = _in_bytes(data, others, rng)
    return data


def _in_bytes(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64))
    return rng.choice(_EDITS)(data, at, size, rng, others)


def _flip(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    byte = data[at] if at < len(data) else 0
    return data[:at] + bytes([byte ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _replace(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + rng.randbytes(size) + data[at + size :]


def _cut_off(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at]


def _extend(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data + (rng.randbytes(size) if rng.random() < 0.5 else bytes(size))


def _insert(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + rng.randbytes(size) + data[at:]


def _take_out(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + data[at + size :]


def _repeat(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + data[at : at + size] * rng.choice((2, 2, 3, 50)) + data[at + size :]


def _lengthen(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + _length(rng) + data[at + rng.choice((0, 1, 2, 4, 8)) :]


def _splice(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[:at] + other[rng.randrange(len(other) + 1) :]


def _token(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[:at] + rng.choice(TOKENS) + data[at + rng.choice((0, 0, 1, 4)) :]


def _copy(data: bytes, at: int, size: int, rng: Random, others: Sequence[bytes]) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:at] + data[start : start + size] + data[at + size :]


_EDITS = [
    _flip,
    _flip,
    _replace,
    _cut_off,
    _extend,
    _insert,
    _take_out,
    _repeat,
    _lengthen,
    _splice,
    _token,
    _copy,
]


def _length(rng: Random) -> bytes:
    """A length or number where one may stand, of any width and order."""
    form = rng.choice((">B", ">H", ">I", ">Q", "<H", "<I", "<Q"))
    most = (1 << 8 * struct.calcsize(form)) - 1
    return struct.pack(form, (rng.choice(NUMBERS) + rng.choice((-1, 0, 1))) & most)


def _in_tree(data: bytes, tree: Tree, rng: Random) -> bytes:
    root = [tree.load(data)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _edit(root, rng, lambda: [tree.load(data)])
    try:
        return tree.dump(root[0], rng)
    except UNWRITABLE:
        return data  # A tree that this form cannot spell: seldom, and counted as it stands.


def _edit(root: list[Any], rng: Random, fresh: Callable[[], list[Any]]) -> None:
    """Change one place, found by walking down at random; JSON inside a text is a tree of its own."""
    holder, key = _place(root, rng)
    value = holder[key]
    if isinstance(value, str) and value[:1] == "{" and rng.random() < 0.8:
        holder[key] = mutate(value.encode(errors="surrogatepass"), [b"{}"], rng).decode(errors="replace")
        return
    kind = rng.randrange(10)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = holder.pop(key)
    elif kind == 2 and isinstance(holder, list) and holder is not root:
        holder.insert(key, value)
    elif kind == 3:
        other, place = _place(fresh(), rng)
        holder[key] = other[place]
    elif kind == 4 and isinstance(value, str):
        holder[key] = _other_text(value, rng)
    elif kind == 5 and isinstance(value, int | float):
        holder[key] = rng.choice((value - 1, value + 1, value + (1 << 40), -value, value * 10))
    elif kind == 6:
        holder[key] = _nested(value, rng)
    else:
        holder[key] = _anything(rng)


def _place(root: list[Any], rng: Random) -> tuple[Any, Any]:
    holder: Any = root
    key: Any = 0
    while isinstance(value := holder[key], dict | list) and value and rng.random() < 0.85:
        holder, key = value, rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    return holder, key


def _other_text(value: str, rng: Random) -> str:
    at = rng.randrange(len(value) + 1)
    odd = rng.choice(("\ud800", "\0", "A", " ", "\u202e", "0", "g"))
    return rng.choice((value[:at], value + odd, value[:at] + odd + value[at + 1 :], value.upper(), value * 2))


def _nested(value: Any, rng: Random) -> Any:
    for _ in range(rng.choice(_NESTS)):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def _anything(rng: Random) -> Any:
    pool = rng.randrange(4)
    if pool == 0:
        return rng.choice(NUMBERS)
    if pool == 1:
        return rng.choice(TEXTS)
    if pool == 2:
        return rng.choice((float("nan"), float("inf"), 10**400, -(10**30), "\ud800", "\udfff\ud800"))
    return rng.choice(ODD)
