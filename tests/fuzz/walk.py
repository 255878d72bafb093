"""Which functions of the package read what somebody else wrote: found in its source, none forgotten."""

import ast
from collections.abc import Iterator
from pathlib import Path

import maskedlark

PARSERS = frozenset(
    {
        "Reader",
        "b64decode",
        "json.loads",
        "load_from_string",
        "model_validate",
        "model_validate_json",
        "np.load",
        "Reader.message",
        "tomllib.loads",
        "unpack",
        "unpack_from",
        "validate_json",
    }
)
"""Calls that make something of bytes or text: whoever makes one is a decoder, whatever it is called."""
NUMBERS = frozenset({"from_bytes", "frombuffer"})
"""Calls that make numbers of bytes, also of this party's own: of bytes that it was given, in a decoder."""
GIVEN = frozenset({"ByteRows", "Reader", "bytes"})
NAMES = (
    *("candidates_of", "decode", "decrypt", "from_bytes", "from_json", "load", "parse", "read", "typed"),
    *("unpack", "unpad", "unseal", "verify"),
)
"""What a public decoder's name begins with."""
READABLE = frozenset({"ByteRows", "Path", "Request", "bytes", "str"})
"""What a decoder takes: the message, or the file that it is in."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def decoders() -> set[str]:
    """Every decoder in the source, as room.file.name or room.file.Class.name."""
    root = Path(maskedlark.__path__[0])
    return {
        f"{'.'.join(path.relative_to(root).with_suffix('').parts)}.{name}"
        for path in root.rglob("*.py")
        for name, function in _functions(ast.parse(path.read_text()))
        if _is_public_decoder(name, function) or _parses(function) or _makes_numbers(function)
    }


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, Function):
                    yield f"{node.name}.{each.name}", each


def _is_public_decoder(name: str, function: Function) -> bool:
    return name.rpartition(".")[2].startswith(NAMES) and not READABLE.isdisjoint(_taken(function))


def _parses(function: Function) -> bool:
    return any(name in PARSERS or name.rpartition(".")[2] in PARSERS for name in _called(function))


def _makes_numbers(function: Function) -> bool:
    called = {name.rpartition(".")[2] for name in _called(function)}
    return not NUMBERS.isdisjoint(called) and not GIVEN.isdisjoint(_taken(function))


def _taken(function: Function) -> set[str]:
    """The words of what a function takes, as annotated."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    written = [ast.unparse(each.annotation) for each in arguments if each.annotation is not None]
    return {word for text in written for word in text.replace("|", " ").split()}


def _called(function: Function) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
