"""`helper.toml`: all that a helper's operator decides. `helper init` writes one; unknown keys are refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from maskedlark.compute.settings import ComputeSettings
from maskedlark.helper.keyring import DAY_S, KEEP_S
from maskedlark.parameters.document import Origin
from maskedlark.parameters.policy import Policy
from maskedlark.parameters.settings import Name, PublicKey
from maskedlark.storage.engine import parse
from maskedlark.web import config, skeleton
from maskedlark.web.config import Address, DatabaseUrl, PartyConfig, Serving
from maskedlark.web.skeleton import AS_SHOWN, KEY
from maskedlark.wire.message import Settings
from maskedlark.wire.signatures import VerifyingKey

FRESH_S = 60
FILE = "helper.toml"
_URL = "://"


def _anchor(text: str) -> str:
    if _URL in text and parse(text).get_backend_name() != "postgresql":
        raise ValueError("an anchor is a folder, or in a PostgreSQL database")
    return text


class Limits(Settings):
    """How much a helper accepts at once. The number of bodies times their size bounds its memory."""

    chunk_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=16 << 20, description="the largest chunk of a dataset: chunk_bytes = 16777216"
    )
    freeze_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=32 << 20,
        description="the largest request to freeze a dataset: the bitmaps of as many chunks as it may have, "
        "each of the usual size: freeze_bytes = 33554432",
    )
    step_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=8 << 20, description="the largest step of a session, its weights: step_bytes = 8388608"
    )
    bodies: Annotated[int, Field(ge=1, le=1 << 10)] = Field(
        default=16,
        description="bodies that are read at the same time, half of them at most of one origin; times the "
        "largest of these, they bound memory: bodies = 16",
    )
    body_within_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60.0, description="seconds from the first to the last byte of a body: body_within_s = 60"
    )


class Config(PartyConfig):
    """A helper's settings. An error about a key is followed by the key's `description`."""

    name: Name = Field(description='the helper\'s name, as documents name it: name = "helper-0"')
    folder: Path = Field(
        description="where it keeps keys, columns and, unless told otherwise, database and anchor: "
        'folder = "state"'
    )
    address: Address = Field(
        description='where it is reached, as published with its keys: address = "https://helper-0.example"'
    )
    parameter_service: Address = Field(
        description='the service\'s address: parameter_service = "https://parameters.example"'
    )
    service_key: PublicKey = Field(
        description=f'the service\'s public key, from its operator: service_key = "{KEY}"'
    )
    origins: dict[Origin, PublicKey] = Field(
        min_length=1,
        description=f"the document key that signed each ad server's first document: [origins] "
        f'"ads.example" = "{KEY}"',
    )
    policy: Policy = Field(
        description=f'what is accepted at most: [policy] trusted_helpers = ["{KEY}"], '
        "max_budget = {epsilon = 8, delta = 1e-6}, max_coalition = {epsilon = 40, delta = 1e-6}"
    )
    database: DatabaseUrl | None = Field(
        default=None,
        repr=False,
        description='its URL, else SQLite in the folder: database = "postgresql://user@host/helper"',
    )
    anchor: Annotated[str, AfterValidator(_anchor)] | None = Field(
        default=None,
        repr=False,
        description="a folder on another disk than the database's, or the postgresql:// URL of a database of "
        'its own, else in the folder: anchor = "/other/disk/anchor"',
    )
    compute: ComputeSettings = Field(
        default=ComputeSettings(),
        description='where its work runs: [compute] engine = "local", workers = 4',
    )
    functions: tuple[str, ...] = Field(
        default=(), description='modules with more functions: functions = ["ours.medians"]'
    )
    fresh_s: Annotated[int, Field(ge=1, le=DAY_S)] = Field(
        default=FRESH_S, description="seconds until an ad server's key is asked for again: fresh_s = 60"
    )
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=KEEP_S // DAY_S,
        description="days for which old keys still open late reports: keep_days = 180",
    )
    limits: Limits = Field(
        default=Limits(),
        description="how much it takes at once: [limits] chunk_bytes = 16777216, bodies = 16",
    )
    serving: Serving = Field(
        default=Serving(), description='where it listens: [serving] host = "127.0.0.1", port = 8001'
    )

    @property
    def keys_folder(self) -> Path:
        """Where the secret keys are."""
        return self.folder / "keys"

    @property
    def anchor_folder(self) -> Path:
        """Where the anchor stores how far the receipts got, unless it has a URL."""
        return Path(self.anchor) if self.anchor else self.folder / "anchor"

    @property
    def anchor_url(self) -> str | None:
        """The database of an anchor that is in one."""
        return self.anchor if self.anchor and _URL in self.anchor else None

    def beside(self, folder: Path) -> Self:
        """A copy with absolute paths; the anchor's too, if it is one."""
        made = super().beside(folder)
        if self.anchor is None or self.anchor_url is not None:
            return made
        return made.model_copy(update={"anchor": str(folder / self.anchor)})

    @property
    def columns_folder(self) -> Path:
        """Where decoded datasets are."""
        return self.folder / "columns"

    @property
    def parameters_folder(self) -> Path:
        """Where the documents seen are cached."""
        return self.folder / "parameters"

    @property
    def database_url(self) -> str:
        """The configured database, or the one in the folder."""
        return self.database or f"sqlite:///{self.folder / 'database' / 'helper.sqlite'}"

    @property
    def own_compute(self) -> ComputeSettings:
        """With those of the workers that each process that serves has."""
        own = max(1, self.compute.workers // self.serving.processes)
        return self.compute.model_copy(update={"workers": own})

    @property
    def service_key_public(self) -> VerifyingKey:
        """The key that the parameter service signs with."""
        return VerifyingKey(bytes.fromhex(self.service_key))

    @property
    def pinned(self) -> Mapping[str, VerifyingKey]:
        """The first document keys of origins."""
        return {origin: VerifyingKey(bytes.fromhex(key)) for origin, key in self.origins.items()}


def read(path: Path) -> Config:
    """The settings in a `helper.toml`. Run by every command of a helper."""
    return config.read(path, Config)


@dataclass(frozen=True)
class InitOptions:
    """An operator's command-line options for a new helper. Refuses nonsense."""

    name: str
    address: str
    parameter_service: str | None = None
    service_key: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    trusted: Sequence[str] = ()

    def __post_init__(self) -> None:
        config.check("name", Name, self.name)
        config.check("address", Address, self.address)
        config.check("--parameter-service", Address, self.parameter_service)
        config.check("--service-key", PublicKey, self.service_key)
        for identity in self.trusted:
            config.check("--trust", PublicKey, identity)

    def skeleton_text(self, own: str | None) -> str:
        """A `helper.toml` to fill in, which trusts this helper's own identity if there is one."""
        trusted = [f'    "{own}",  # its own'] if own else []
        trusted += [f'    "{each}",' for each in self.trusted if each != own]
        if not self.trusted:
            trusted.append(f'#!     "{KEY}",  # the identity of every other helper that it trusts')
        said = {
            "name": json.dumps(self.name),
            "address": json.dumps(self.address),
            "parameter_service": skeleton.quoted(self.parameter_service),
            "service_key": skeleton.quoted(self.service_key),
            "origins": skeleton.pins(self.origins),
            "policy.trusted_helpers": "\n".join(["[", *trusted, "]"]),
        }
        policy = [f"policy.{name}" for name in ("max_budget", "max_coalition", "min_k", "min_helpers")]
        return skeleton.text("a helper", Config, said | dict.fromkeys(["folder", *policy], AS_SHOWN))
