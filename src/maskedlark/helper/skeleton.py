"""A `helper.toml` to be filled in: what the operator has not said stands there as a comment."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from maskedlark.helper.config import Address
from maskedlark.helper.errors import BadConfig
from maskedlark.privacy.settings import Name
from maskedlark.web import files
from maskedlark.wire.signatures import VerifyingKey

FILE = "helper.toml"
_TEXT = """\
# The settings of a helper. Paths are relative to this file. Fill in what begins with #!.
name = {name}
address = {address}
folder = "state"
# host = "127.0.0.1"
# port = 8001
# workers = 4                                       # as many as there are processors
# database = "postgresql://user@host/helper"        # else SQLite in the folder
# anchor = "/other/disk/anchor"                     # best not on the disk of the database
# functions = ["ours.medians"]                      # modules with more functions
# fresh_s = 60                                      # an ad server's old key stops working within this time
# most_leap_days = 30                               # a clock further ahead than this deletes nothing
# keep_days = 180                                   # old keys open late reports for so long

#! parameter_service = "https://parameters.example"
#! service_key = "64 hexadecimal digits"            # from the operator of the parameter service

[origins]                                           # for whom it works: the key of the first document
#! "ads.example" = "64 hexadecimal digits"

[policy]                                            # what it accepts, whatever a document declares
trusted_helpers = [
{own}#!     "64 hexadecimal digits",                # the identity of every other helper that it trusts
]
most = {{epsilon = 8.0, delta = 1e-6}}                # of one source, against an ad server
most_coalition = {{epsilon = 40.0, delta = 1e-6}}     # the same, with all helpers but one
least_k = 20
least_helpers = 2
"""


def place(folder: Path, name: str, address: str) -> Path:
    """Where the new settings go. Refuses a folder that has some, and what no helper could run with."""
    _check("name", TypeAdapter(Name), name)
    _check("address", TypeAdapter(Address), address)
    path = folder / FILE
    if path.exists():
        raise BadConfig(f"{path} exists already: change it, or name another folder")
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return path


def write(path: Path, name: str, address: str, identity: VerifyingKey | None) -> None:
    """The settings, with this helper among those that it trusts."""
    own = "" if identity is None else f'    "{identity.public.hex()}",  # its own\n'
    text = _TEXT.format(name=json.dumps(name), address=json.dumps(address), own=own)
    files.write(path, text.encode())


def _check(what: str, form: TypeAdapter[str], text: str) -> None:
    try:
        form.validate_python(text, strict=True)
    except ValidationError as error:
        wrong = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadConfig(f"{what}: {wrong}") from None
