"""A party's TOML to be filled in, made from its model: every key with its description.

Run by `init` of every party. What the operator has not given is a comment: `#!` before what must be filled
in, `#` before what may be, with its default or an example.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from maskedlark.parameters.settings import PublicKey
from maskedlark.web import config, files
from maskedlark.web.errors import BadConfig

KEY = "64 hexadecimal digits"
AS_SHOWN = ""
"""As a key's value: use the example of its description."""
_WIDTH, _COMMENT = 110, 51


def text(whose: str, form: type[BaseModel], said: Mapping[str, str | None]) -> str:
    """The settings. `said`: values in TOML syntax, by key; those in tables by `table.key`."""
    first = f"# The settings of {whose}. Paths are relative to this file. Fill in what begins with #!."
    return "\n".join([first, *_lines(form, said, "")]) + "\n"


def described(name: str, field: FieldInfo) -> tuple[str, str]:
    """What a key is for, and an example of its value (for a table, of a line in it)."""
    why, key, example = (field.description or "").rpartition(f"[{name}]" if is_table(field) else f"{name} = ")
    assert key, f"{name} has a description that ends in an example"
    return why.rstrip(": "), example.strip()


def is_table(field: FieldInfo) -> bool:
    """Whether the field is a TOML table with its own heading."""
    return _model(field) is not None or getattr(field.annotation, "__origin__", None) is dict


def _model(field: FieldInfo) -> type[BaseModel] | None:
    form = field.annotation
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        return None
    # A budget is written on one line: its fields have no descriptions.
    return form if all(inner.description for inner in form.model_fields.values()) else None


def _lines(form: type[BaseModel], said: Mapping[str, str | None], table: str) -> Iterator[str]:
    """Required keys, then other keys, then tables, since a table extends to the next heading."""
    order = sorted(form.model_fields.items(), key=lambda each: (is_table(each[1]), not each[1].is_required()))
    for name, field in order:
        why, example = described(name, field)
        value = said.get(table + name)
        if (inner := _model(field)) is not None:
            yield from ["", *_explained(f"[{name}]", why), *_lines(inner, said, f"{name}.")]
        elif is_table(field):
            yield from ["", *_explained(f"[{name}]", why), value or f"#! {example}"]
        elif value is not None:
            yield from _explained(f"{name} = {value or example}", why)
        else:
            yield from _explained(f"#{'!' * field.is_required()} {name} = {example}", why)


def _explained(line: str, why: str) -> list[str]:
    """A line with its description after it, or above it where there is no room."""
    beside = f"{line:<{_COMMENT}} # {why}"
    if "\n" not in line and len(beside) <= _WIDTH:
        return [beside]
    above = textwrap.wrap(f"{why}:", _WIDTH, initial_indent="# ", subsequent_indent="# ")
    return [*above, line]


def quoted(value: str | None) -> str | None:
    """A string in TOML syntax."""
    return None if value is None else json.dumps(value)


def pins(table: Mapping[str, str]) -> str:
    """The lines of a table of public keys."""
    return "\n".join(f'"{name}" = "{key}"' for name, key in table.items())


def pinned(option: str, said: list[str], form: Any) -> dict[str, str]:  # noqa: ANN401 - a type, as pydantic takes it
    """Public keys by name, from NAME=KEY options of the command line."""
    keys = {}
    for each in said:
        name, _, key = each.partition("=")
        config.check(f"{option} {name}", form, name)
        config.check(f"{option} {name}=…", PublicKey, key)
        keys[name] = key
    return keys


def place(folder: Path, name: str) -> Path:
    """The path of new settings, in a folder that is created. Refuses one that has settings."""
    path = folder / name
    if path.exists():
        raise BadConfig(f"{path} exists already: change it, or name another folder")
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return path


def write(path: Path, text: str) -> None:
    """Durably write the settings, readable by their owner alone: a database URL may contain a password."""
    files.write(path, text.encode())
