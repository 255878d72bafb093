"""`parameters.toml`: what the parameter service signs with, where it keeps things, whom it vouches for.

key = "service.key"                             # paths are relative to the file
database = "sqlite:///parameters.sqlite"

[origins]
"ads.example" = "64 hexadecimal digits: the document key that signs its first document"

[helpers]
"helper-0" = "64 hexadecimal digits: its identity"

[serving]
port = 8000
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import Name, PublicKey
from maskedlark.web import config
from maskedlark.web.config import DatabaseUrl, PartyConfig, Serving
from maskedlark.wire.signatures import VerifyingKey

_KEY = "64 hexadecimal digits"


class Config(PartyConfig):
    """The parameter service's settings. The secret stays in the key file."""

    key: Path = Field(description='the file of the key that it signs with: key = "service.key"')
    database: DatabaseUrl = Field(repr=False, description='its URL: database = "sqlite:///parameters.sqlite"')
    origins: dict[Origin, PublicKey] = Field(
        default_factory=dict,
        description=f"the document key that signs each ad server's first document: [origins] "
        f'"ads.example" = "{_KEY}"',
    )
    helpers: dict[Name, PublicKey] = Field(
        default_factory=dict, description=f'the identity of each helper: [helpers] "helper-0" = "{_KEY}"'
    )
    serving: Serving = Field(
        default=Serving(), description='where it listens: [serving] host = "127.0.0.1", port = 8000'
    )

    @property
    def pinned(self) -> Pinned:
        """Whom it vouches for."""
        return Pinned(_keys(self.origins), _keys(self.helpers))


def read(path: Path) -> Config:
    """The settings in a `parameters.toml`. Run by the service's operator."""
    return config.read(path, Config)


def _keys(table: Mapping[str, str]) -> dict[str, VerifyingKey]:
    return {name: VerifyingKey(bytes.fromhex(key)) for name, key in table.items()}
