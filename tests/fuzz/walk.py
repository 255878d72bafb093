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
NAMES = ("decode", "from_json", "load", "parse", "read", "unpack", "unpad", "verify")
"""What a public decoder's name begins with."""
READABLE = ("bytes", "Path", "str", "Request")
"""What a decoder takes: the message, or the file that it is in."""


def decoders() -> set[str]:
    """Every decoder in the source, as room.file.name or room.file.Class.name."""
    root = Path(maskedlark.__path__[0])
    return {
        f"{'.'.join(path.relative_to(root).with_suffix('').parts)}.{name}"
        for path in root.rglob("*.py")
        for name, function in _functions(ast.parse(path.read_text()))
        if _is_public_decoder(name, function) or _parses(function)
    }


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}", each


def _is_public_decoder(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    written = [ast.unparse(each.annotation) for each in arguments if each.annotation is not None]
    return name.rpartition(".")[2].startswith(NAMES) and any(
        word in READABLE for text in written for word in text.replace("|", " ").split()
    )


def _parses(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    called = (ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(name in PARSERS or name.rpartition(".")[2] in PARSERS for name in called)
