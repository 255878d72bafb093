"""A `helper.toml` to be filled in: what the operator has not said stands there as a comment."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from maskedlark.parameters.settings import Name, PublicKey
from maskedlark.web import config
from maskedlark.web.skeleton import KEY, SERVING, given, pins

FILE = "helper.toml"
_TEXT = """\
# The settings of a helper. Paths are relative to this file. Fill in what begins with #!.
name = {name}
address = {address}
folder = "state"
# workers = 4                                       # as many as there are processors
# database = "postgresql://user@host/helper"        # else SQLite in the folder
# anchor = "/other/disk/anchor"                     # best not on the disk of the database
# functions = ["ours.medians"]                      # modules with more functions
# fresh_s = 60                                      # an ad server's old key stops working within this time
# most_leap_days = 30                               # a clock further ahead than this deletes nothing
# keep_days = 180                                   # old keys open late reports for so long

{parameter_service}
{service_key}

[origins]                                           # for whom it works: the first document key
{origins}

[policy]                                            # what it accepts, whatever a document declares
trusted_helpers = [
{trusted}]
most = {{epsilon = 8.0, delta = 1e-6}}                # of one source, against an ad server
most_coalition = {{epsilon = 40.0, delta = 1e-6}}     # the same, with all helpers but one
least_k = 20
least_helpers = 2
# whole_label_space = true                          # refuse models that show only some of their labels

[limits]
# chunk_bytes = 16777216
# sealing_bytes = 33554432
# step_bytes = 8388608                              # a session's weights
# bodies = 16                                       # times the largest of these, it bounds memory
# body_within_s = 60

{serving}"""


@dataclass(frozen=True)
class Said:
    """What the operator said on the command line."""

    name: str
    address: str
    parameter_service: str | None = None
    service_key: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    trusted: Sequence[str] = ()


def check(said: Said) -> None:
    """Refuse what no helper could run with."""
    config.check("name", Name, said.name)
    config.check("address", config.Address, said.address)
    if said.parameter_service is not None:
        config.check("--parameter-service", config.Address, said.parameter_service)
    if said.service_key is not None:
        config.check("--service-key", PublicKey, said.service_key)
    for identity in said.trusted:
        config.check("--trust", PublicKey, identity)


def text(said: Said, own: str | None) -> str:
    """The settings, with this helper's own identity, if it was made, among those that it trusts."""
    trusted = [f'    "{own}",  # its own\n'] if own else []
    trusted += [f'    "{each}",\n' for each in said.trusted if each != own]
    if not said.trusted:
        trusted.append(
            f'#!     "{KEY}",                # the identity of every other helper that it trusts\n'
        )
    return _TEXT.format(
        name=json.dumps(said.name),
        address=json.dumps(said.address),
        parameter_service=given("parameter_service", said.parameter_service, "https://parameters.example"),
        service_key=given("service_key", said.service_key, KEY, "from the operator of the parameter service"),
        origins=pins(said.origins, "ads.example"),
        trusted="".join(trusted),
        serving=SERVING,
    )
