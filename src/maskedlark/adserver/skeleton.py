"""An `adserver.toml` to be filled in: what the operator has not said stands there as a comment."""

import json
from pathlib import Path

from maskedlark.web.skeleton import KEY, SERVING, given

FILE = "adserver.toml"
_TEXT = """\
# The settings of an ad server. Paths are relative to this file. Fill in what begins with #!.
origin = {origin}
database = "sqlite:///reports.sqlite"               # or "postgresql://user@host/reports"
key = {key}
cache = "cache"
origin_key = {origin_key}
{parameter_service}
{service_key}
# keep_days = 180                                   # reports are deleted when they are so old
# most_leap_days = 30                               # a clock further ahead than this deletes nothing

[limits]
# uploads = 64                                      # times body_bytes, it bounds memory
# body_bytes = 4194304
# reports = 4096
# report_bytes = 1048576
# body_within_s = 60
# hours_ahead = 48
# hours_behind = 2160

{serving}"""


def text(
    origin: str,
    key: Path,
    origin_key: str,
    parameter_service: str | None = None,
    service_key: str | None = None,
) -> str:
    """The settings: the file of the request key, and the public half of the document key."""
    return _TEXT.format(
        origin=json.dumps(origin),
        key=json.dumps(str(key)),
        origin_key=json.dumps(origin_key),
        parameter_service=given("parameter_service", parameter_service, "https://parameters.example"),
        service_key=given("service_key", service_key, KEY, "from the operator of the parameter service"),
        serving=SERVING,
    )
