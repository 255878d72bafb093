"""Trees that messages spell, in JSON, TOML or ONNX: taken apart, and written again in that form."""

import json
import tomllib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from google.protobuf import json_format  # type: ignore[import-untyped,unused-ignore]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import ModelProto

UNWRITABLE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    RecursionError,
    SystemError,
    TypeError,
    ValueError,
    json_format.Error,
)
"""What the writers of forms end in, for trees that have no such form."""


class Tree(NamedTuple):
    """How a kind of message is taken apart and written again."""

    load: Callable[[bytes], Any]
    dump: Callable[[Any, Random], bytes]


def _json(item: Any, rng: Random) -> bytes:
    text = json.dumps(item, ensure_ascii=rng.random() < 0.8, indent=1 if rng.random() < 0.2 else None)
    return _twice(item, text, rng).encode(errors="surrogatepass")


def _twice(item: Any, text: str, rng: Random) -> str:
    """Now and then an object names a key twice, which no writer of JSON does."""
    if rng.random() > 0.03 or not isinstance(item, dict) or not item:
        return text
    name = rng.choice(list(item))
    return "{" + f"{json.dumps(name)}:{json.dumps(item[name])}," + text[1:]


def _canonical_json(item: Any, rng: Random) -> bytes:
    text = json.dumps(item, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return _twice(item, text, rng).encode(errors="surrogatepass")


JSON = Tree(json.loads, _json)
CANONICAL = Tree(json.loads, _canonical_json)


def _toml(item: Any, rng: Random) -> bytes:
    return "".join(f"{json.dumps(name)} = {_toml_value(value)}\n" for name, value in item.items()).encode()


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        inner = (f"{json.dumps(name)} = {_toml_value(each)}" for name, each in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if value is None:
        raise ValueError("TOML has no null")
    return (
        hex(value)
        if type(value) is int and value > 1 << 400
        else json.dumps(value).replace("Infinity", "inf")
    )


def _onnx(item: Any, rng: Random) -> bytes:
    return bytes(json_format.ParseDict(item, ModelProto(), ignore_unknown_fields=True).SerializeToString())


ONNX = Tree(lambda data: json_format.MessageToDict(ModelProto.FromString(data)), _onnx)
TOML = Tree(lambda data: tomllib.loads(data.decode()), _toml)


@lru_cache(maxsize=1024)
def tree_of(data: bytes) -> Tree | None:
    """How this message is taken apart; none where it has no such form."""
    if data[:1] in (b"{", b"["):
        compact = b'": ' not in data[:100] and b"\n" not in data[:100]
        return if_whole(CANONICAL if compact else JSON, data)
    return None


def if_whole(tree: Tree, data: bytes) -> Tree | None:
    try:
        found = tree.load(data)
    except (ValueError, RecursionError, EOFError, DecodeError):
        return None
    return tree if isinstance(found, dict | list) else None
