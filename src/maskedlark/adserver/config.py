"""`adserver.toml`: who the ad server is, where it keeps things and how long, and whom it trusts.

`maskedlark adserver init` writes one with every key. Read in one place, frozen, and closed to unknown keys.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field

from maskedlark.adserver.trusted_parameters import TrustedParameters
from maskedlark.clock import Clock
from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import PublicKey
from maskedlark.web import config, key_file, skeleton
from maskedlark.web.config import Address, DatabaseUrl, PartyConfig, Serving
from maskedlark.web.skeleton import AS_SHOWN, KEY
from maskedlark.wire.message import Settings
from maskedlark.wire.report import MAX_BYTES

FILE = "adserver.toml"
KEEP_DAYS = 180
"""As long as helpers keep the keys that open a report: nobody can use an older one."""
Rate = Annotated[float, Field(gt=0, le=1e12)]


class Limits(Settings):
    """How much an ad server accepts from strangers at once: the `[limits]` table."""

    uploads: Annotated[int, Field(ge=1, le=1 << 16)] = Field(
        default=64, description="read at the same time; times body_bytes, it bounds memory: uploads = 64"
    )
    body_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=4 << 20, description="the largest upload: body_bytes = 4194304"
    )
    reports: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=4096, description="reports in one upload: reports = 4096"
    )
    report_bytes: Annotated[int, Field(ge=1 << 8, le=MAX_BYTES)] = Field(
        default=MAX_BYTES,
        description="the largest report. Larger ones are refused for good; the log says if a document "
        f"declares such: report_bytes = {MAX_BYTES}",
    )
    body_within_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60.0, description="seconds from the first to the last byte of a body: body_within_s = 60"
    )
    address_reports_per_s: Rate = Field(
        default=100,
        description="reports from one address, perhaps an office's; of IPv6 from one /64. Beyond these "
        "rates 429 says when to come again: address_reports_per_s = 100",
    )
    address_bytes_per_s: Rate = Field(
        default=1 << 18, description="bytes of uploads from one address: address_bytes_per_s = 262144"
    )
    reports_per_s: Rate = Field(default=5000, description="reports in all: reports_per_s = 5000")
    bytes_per_s: Rate = Field(default=16 << 20, description="bytes in all: bytes_per_s = 16777216")
    burst_s: Rate = Field(default=60, description="seconds of these rates at once: burst_s = 60")
    disk_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8,
        description="of the SQLite file and what is free on its disk, for reports: disk_share = 0.8",
    )
    hours_ahead: Annotated[int, Field(ge=0, le=8760)] = Field(
        default=48,
        description="how far a browser's clock may be ahead. Refused is refused for good, and only while the "
        "ad server's own clock is confirmed: else the browser sends the report again: hours_ahead = 48",
    )
    hours_behind: Annotated[int, Field(ge=1, le=87_600)] = Field(
        default=90 * 24,
        description="how late a report may come; helpers hold it to its lifetime: hours_behind = 2160",
    )


class Config(PartyConfig):
    """The settings for taking uploads and measuring. Secrets stay in the key file."""

    origin: Origin = Field(description='whose reports it takes: origin = "ads.example"')
    database: DatabaseUrl = Field(
        repr=False,
        description='where it keeps them, sqlite:///… or postgresql://…: database = "sqlite:///reports.sqlite"',
    )
    key: Path = Field(
        description="the file of the request key that the origin declares now, which measuring reads: "
        'key = "request.key"'
    )
    cache: Path = Field(description='where it remembers which documents it has seen: cache = "cache"')
    parameter_service: Address = Field(
        description='the service\'s address: parameter_service = "https://parameters.example"'
    )
    service_key: PublicKey = Field(
        description=f'the service\'s public key, from its operator: service_key = "{KEY}"'
    )
    origin_key: PublicKey = Field(
        description=f'the document key that signed the origin\'s first document: origin_key = "{KEY}"'
    )
    keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=KEEP_DAYS, description="days after which a report is deleted: keep_days = 180"
    )
    limits: Limits = Field(
        default=Limits(), description="how much it takes at once: [limits] uploads = 64, body_bytes = 4194304"
    )
    serving: Serving = Field(
        default=Serving(), description='where it listens: [serving] host = "127.0.0.1", port = 8000'
    )

    @property
    def database_url(self) -> str:
        """The configured database."""
        return self.database

    def parameters(self, clock: Clock) -> TrustedParameters:
        """The client of the parameter service, under the keys of this file."""
        keys = key_file.public(self.service_key), key_file.public(self.origin_key)
        return TrustedParameters(self.parameter_service, keys[0], self.cache, clock, {self.origin: keys[1]})


def read(path: Path) -> Config:
    """The settings in an `adserver.toml`. Run by the ad server's operator."""
    return config.read(path, Config)


def skeleton_text(
    origin: str,
    key: Path,
    origin_key: str,
    parameter_service: str | None = None,
    service_key: str | None = None,
) -> str:
    """An `adserver.toml` to be filled in: `key` is the file of the request key. Run by `init`."""
    said = {
        "origin": json.dumps(origin),
        "database": AS_SHOWN,
        "key": json.dumps(str(key)),
        "cache": AS_SHOWN,
        "origin_key": json.dumps(origin_key),
        "parameter_service": skeleton.quoted(parameter_service),
        "service_key": skeleton.quoted(service_key),
    }
    return skeleton.text("an ad server", Config, said)
