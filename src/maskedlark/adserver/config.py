"""The ad server's configuration: who it is, where it keeps things, and whom it trusts. One TOML file.

origin = "ads.example"
database = "sqlite:///reports.db"               # paths are relative to the file
key = "origin.key"
cache = "cache"
parameter_service = "http://127.0.0.1:8000"
service_key = "3b6a…"                           # from the operator of the parameter service
origin_key = "9d61…"                            # the one that signed the origin's first document
"""

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from maskedlark.adserver.errors import BadSettings
from maskedlark.privacy.document import Origin
from maskedlark.privacy.settings import PublicKey, Settings, faults
from maskedlark.storage.engine import beside

_Text = Annotated[str, StringConstraints(min_length=1)]


class Config(Settings):
    """All that a measuring client needs. Secrets stay in the key file."""

    origin: Origin
    database: Annotated[_Text, Field(repr=False)]
    """A URL; it may hold a password, so it is not printed."""
    key: _Text
    """The file of the key that the origin declares now."""
    cache: _Text
    parameter_service: _Text
    service_key: PublicKey
    origin_key: PublicKey


def read(path: Path) -> Config:
    """The configuration in a file, its paths resolved. Run by the ad server's own people."""
    try:
        found = Config.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        raise BadSettings(f"{path}: {faults(error)}") from None
    folder = path.absolute().parent
    changed = {"key": str(folder / found.key), "cache": str(folder / found.cache)}
    return found.model_copy(update=changed | {"database": beside(found.database, folder)})
