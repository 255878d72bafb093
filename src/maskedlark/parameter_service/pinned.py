"""Whom the operator of the parameter service vouches for: first keys of origins, identities of helpers."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maskedlark.errors import InvalidDocument
from maskedlark.web import key_file
from maskedlark.wire.signatures import VerifyingKey


@dataclass(frozen=True)
class Pinned:
    """Public keys by name. An origin's first key signs its first document; later keys are in the chain."""

    origins: Mapping[str, VerifyingKey] = field(default_factory=dict)
    helpers: Mapping[str, VerifyingKey] = field(default_factory=dict)


def read(path: Path) -> Pinned:
    """The pinned keys in a TOML file with the tables `origins` and `helpers`, name = public key."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidDocument(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidDocument(f"{path} is no TOML: {error}") from None
    if unknown := tables.keys() - {"origins", "helpers"}:
        raise InvalidDocument(f"{path} has {min(unknown)!r}; it takes the tables origins and helpers")
    return Pinned(_keys(path, tables.get("origins", {})), _keys(path, tables.get("helpers", {})))


def _keys(path: Path, table: object) -> dict[str, VerifyingKey]:
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table.values()):
        raise InvalidDocument(f'{path} pins keys as name = "64 hexadecimal digits"')
    return {name: key_file.public(key) for name, key in table.items()}
