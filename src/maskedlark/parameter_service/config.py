"""`parameters.toml`: the parameter service's signing key, storage, and the keys it vouches for.

`maskedlark parameters init` writes one with every key. Read in one place, frozen, and closed to unknown keys.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import Name, PublicKey
from maskedlark.web import config, skeleton
from maskedlark.web.config import DatabaseUrl, PartyConfig, Serving
from maskedlark.web.skeleton import AS_SHOWN, KEY
from maskedlark.wire.signatures import VerifyingKey

FILE = "parameters.toml"


class Config(PartyConfig):
    """The parameter service's settings. The secret stays in the key file."""

    key: Path = Field(description='the file of the key that it signs with: key = "service.key"')
    database: DatabaseUrl = Field(
        repr=False,
        description='its URL, sqlite:///… or postgresql://…: database = "sqlite:///parameters.sqlite"',
    )
    origins: dict[Origin, PublicKey] = Field(
        default_factory=dict,
        description=f"the document key that signs each ad server's first document: [origins] "
        f'"ads.example" = "{KEY}"',
    )
    helpers: dict[Name, PublicKey] = Field(
        default_factory=dict, description=f'the identity of each helper: [helpers] "helper-0" = "{KEY}"'
    )
    serving: Serving = Field(
        default=Serving(), description='where it listens: [serving] host = "127.0.0.1", port = 8000'
    )

    @property
    def database_url(self) -> str:
        """The configured database."""
        return self.database

    @property
    def pinned(self) -> Pinned:
        """Whom it vouches for."""
        return Pinned(_keys(self.origins), _keys(self.helpers))


def read(path: Path) -> Config:
    """The settings in a `parameters.toml`. Run by the service's operator."""
    return config.read(path, Config)


def skeleton_text(key: Path, origins: Mapping[str, str], helpers: Mapping[str, str]) -> str:
    """A `parameters.toml` to be filled in, with whom the service vouches for from the start."""
    said = {
        "key": json.dumps(str(key)),
        "database": AS_SHOWN,
        "origins": skeleton.pins(origins),
        "helpers": skeleton.pins(helpers),
    }
    return skeleton.text("a parameter service", Config, said)


def _keys(table: Mapping[str, str]) -> dict[str, VerifyingKey]:
    return {name: VerifyingKey(bytes.fromhex(key)) for name, key in table.items()}
