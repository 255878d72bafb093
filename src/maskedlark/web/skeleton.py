"""A party's TOML to be filled in: what the operator has not said stands there as a comment."""

import json
from collections.abc import Mapping
from pathlib import Path

from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import Name, PublicKey
from maskedlark.web import config, files
from maskedlark.web.errors import BadConfig

KEY = "64 hexadecimal digits"
SERVING = """\
[serving]                                           # last, so that lines can be added behind it
# host = "127.0.0.1"
# port = 8000                                       # 0 is any free one
# certificate = "tls/chain.pem"                     # both for TLS, or neither behind a proxy that has it
# certificate_key = "tls/key.pem"
# most_connections = 1024
# idle_s = 15                                       # a connection that asks nothing for so long is closed
# drain_s = 5                                       # told to stop, it still answers, and says it is not ready
# stop_within_s = 10                                # then what is under way is finished
# metrics_port = 9100                               # where monitoring reads, apart from what strangers reach
# metrics_host = "127.0.0.1"
"""


def place(folder: Path, name: str) -> Path:
    """Where new settings go, in a folder that is made. Refuses one that has some."""
    path = folder / name
    if path.exists():
        raise BadConfig(f"{path} exists already: change it, or name another folder")
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return path


def write(path: Path, text: str) -> None:
    """The settings, durable, for their owner alone: a database's URL in them may hold a password."""
    files.write(path, text.encode())


def given(key: str, value: str | None, example: str, why: str = "") -> str:
    """A line with what was said, or one to fill in."""
    line = f"#! {key} = {json.dumps(example)}" if value is None else f"{key} = {json.dumps(value)}"
    return f"{line:<51} # {why}" if why and value is None else line


def pins(table: Mapping[str, str], example: str) -> str:
    """The lines of a table of public keys, or one to fill in."""
    if not table:
        return f'#! "{example}" = "{KEY}"'
    return "\n".join(f'"{name}" = "{key}"' for name, key in table.items())


def origins(said: list[str]) -> dict[str, str]:
    """Keys of origins, from NAME=KEY as a command line has them."""
    return _named("--origin", said, Origin)


def helpers(said: list[str]) -> dict[str, str]:
    """Identities of helpers, from NAME=KEY as a command line has them."""
    return _named("--helper", said, Name)


def _named(what: str, said: list[str], form: object) -> dict[str, str]:
    found = {}
    for each in said:
        name, _, key = each.partition("=")
        config.check(f"{what} {name}", form, name)
        config.check(f"{what} {name}=…", PublicKey, key)
        found[name] = key
    return found
