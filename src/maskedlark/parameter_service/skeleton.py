"""A `parameters.toml` to be filled in: what the operator has not said stands there as a comment."""

import json
from collections.abc import Mapping
from pathlib import Path

from maskedlark.web.skeleton import SERVING, pins

FILE = "parameters.toml"
_TEXT = """\
# The settings of a parameter service. Paths are relative to this file. Fill in what begins with #!.
key = {key}
database = "sqlite:///parameters.sqlite"            # or "postgresql://user@host/parameters"

[origins]                                           # the document key that signs the first of each
{origins}

[helpers]                                           # the identity of each
{helpers}

{serving}"""


def text(key: Path, origins: Mapping[str, str], helpers: Mapping[str, str]) -> str:
    """The settings, with whom the service vouches for from the start."""
    return _TEXT.format(
        key=json.dumps(str(key)),
        origins=pins(origins, "ads.example"),
        helpers=pins(helpers, "helper-0"),
        serving=SERVING,
    )
