"""`helper.toml`: all that a helper's operator decides. Read in one place, frozen, and closed to unknown keys.

name = "helper-0"
folder = "state"                                  # keys, columns, database; beside this file
address = "https://helper-0.example"              # where browsers and ad servers are told to find it
parameter_service = "https://parameters.example"
service_key = "64 hexadecimal digits, from the service's operator"

[origins]
"ads.example" = "64 hexadecimal digits: the key that signed its first document"

[policy]
trusted_helpers = ["64 hexadecimal digits", "…"]
most = {epsilon = 8, delta = 1e-6}
most_coalition = {epsilon = 40, delta = 1e-6}
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError

from maskedlark.errors import MaskedLarkError
from maskedlark.helper.errors import BadConfig
from maskedlark.helper.ids import MOST_LEAP_S
from maskedlark.helper.keyring import DAY_S, KEEP_S
from maskedlark.privacy.document import Origin
from maskedlark.privacy.policy import Policy
from maskedlark.privacy.settings import Name, PublicKey, Settings
from maskedlark.storage.engine import beside, parse
from maskedlark.wire.keys import MOST_ADDRESS
from maskedlark.wire.signatures import VerifyingKey

FRESH_S = 60
_KEY = "64 hexadecimal digits"


def _address(text: str) -> str:
    try:
        url = urlsplit(text)
        wanted = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        wanted = None
    if not (wanted and text.isascii() and text.isprintable()) or "@" in text or "?" in text or "#" in text:
        raise ValueError("not an address that begins with https:// (or http://) and names a host")
    return text


def _database(text: str) -> str:
    parse(text)
    return text


Address = Annotated[str, Field(max_length=MOST_ADDRESS), AfterValidator(_address)]


class Limits(Settings):
    """How much a helper takes at once. Times each other, bodies and their size bound its memory."""

    chunk_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = 16 << 20
    sealing_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = 32 << 20
    """Of a seal: the bitmaps of as many chunks as a dataset may have, each of the usual size."""
    bodies: Annotated[int, Field(ge=1, le=1 << 10)] = 16
    body_within_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """From the first to the last byte of a body."""


class Config(Settings):
    """A helper's settings. What each `description` says stands behind an error about that key."""

    name: Name = Field(description='the helper\'s name, as documents name it: name = "helper-0"')
    folder: Path = Field(description='where it keeps keys and data: folder = "state"')
    address: Address = Field(
        description='where it is reached, as published with its keys: address = "https://helper-0.example"'
    )
    parameter_service: Address = Field(
        description='the service\'s address: parameter_service = "https://parameters.example"'
    )
    service_key: PublicKey = Field(description=f'the service\'s public key: service_key = "{_KEY}"')
    origins: dict[Origin, PublicKey] = Field(
        min_length=1,
        description=f"the key that signed each ad server's first document: [origins] "
        f'"ads.example" = "{_KEY}"',
    )
    policy: Policy = Field(
        description=f'what is accepted at most: [policy] trusted_helpers = ["{_KEY}"], '
        "most = {epsilon = 8, delta = 1e-6}, most_coalition = {epsilon = 40, delta = 1e-6}"
    )
    database: Annotated[str, AfterValidator(_database)] | None = Field(
        None, description='its URL, as in database = "postgresql://host/helper"; else SQLite in the folder'
    )
    anchor: Path | None = Field(
        None, description='a folder on another disk than the database\'s: anchor = "/other/disk/anchor"'
    )
    host: str = Field("127.0.0.1", description='the address to listen on: host = "127.0.0.1"')
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(0, description="0 is any free port: port = 8001")
    workers: Annotated[int, Field(ge=1, le=1 << 10)] = Field(
        default_factory=lambda: os.cpu_count() or 1, description="processes that open reports: workers = 4"
    )
    functions: tuple[str, ...] = Field((), description='modules with more: functions = ["ours.medians"]')
    fresh_s: Annotated[int, Field(ge=1, le=DAY_S)] = Field(
        FRESH_S, description="seconds until an ad server's key is asked for again: fresh_s = 60"
    )
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        KEEP_S // DAY_S, description="days for which old keys still open late reports: keep_days = 180"
    )
    most_leap_days: Annotated[int, Field(ge=1, le=36_500)] = Field(
        MOST_LEAP_S // DAY_S,
        description="days that may pass between two times of deleting what is old: most_leap_days = 30",
    )
    limits: Limits = Field(
        Limits(),
        description="[limits] chunk_bytes = 16777216, sealing_bytes = 33554432, bodies = 16, "
        "body_within_s = 60",
    )

    @property
    def keys_folder(self) -> Path:
        """Where the secret keys are."""
        return self.folder / "keys"

    @property
    def anchor_folder(self) -> Path:
        """Where it is written how far the receipts got."""
        return self.anchor or self.folder / "anchor"

    @property
    def columns_folder(self) -> Path:
        """Where decoded datasets are."""
        return self.folder / "columns"

    @property
    def parameters_folder(self) -> Path:
        """Where it is remembered which documents were seen."""
        return self.folder / "parameters"

    @property
    def database_url(self) -> str:
        """The database that was named, or the one in the folder."""
        return self.database or f"sqlite:///{self.folder / 'database' / 'helper.sqlite'}"

    @property
    def service_key_public(self) -> VerifyingKey:
        """The key that the parameter service signs with."""
        return VerifyingKey(bytes.fromhex(self.service_key))

    @property
    def pinned(self) -> Mapping[str, VerifyingKey]:
        """The first keys of origins."""
        return {origin: VerifyingKey(bytes.fromhex(key)) for origin, key in self.origins.items()}

    def beside(self, folder: Path) -> Self:
        """The same with absolute paths: relative ones are relative to this folder."""
        anchor = None if self.anchor is None else folder / self.anchor
        changes = {
            "folder": folder / self.folder,
            "anchor": anchor,
            "database": None if self.database is None else beside(self.database, folder),
        }
        return self.model_copy(update=changes)


def read(path: Path) -> Config:
    """The settings in a file. Says which key is wrong, and what to write."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadConfig(f"{path} is no TOML: {error}") from None
    try:
        # Through JSON, which has lists where Python has tuples: strict about everything else.
        return Config.model_validate_json(json.dumps(table)).beside(path.parent.absolute())
    except ValidationError as error:
        raise BadConfig(f"{path}: {'; '.join(map(_fault, error.errors()))}") from None
    except TypeError:
        raise BadConfig(f"{path}: a date or time has no place here") from None
    except MaskedLarkError as error:
        raise BadConfig(f"{path}: {error}") from None


def _fault(fault: Any) -> str:  # noqa: ANN401 - pydantic's own record
    place = ".".join(map(str, fault["loc"]))
    first = str(fault["loc"][0]) if fault["loc"] else ""
    field = Config.model_fields.get(first)
    if field is None:
        return f"{place} is not known; there are {', '.join(Config.model_fields)}"
    wrong = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {wrong}. Write {field.description}"
