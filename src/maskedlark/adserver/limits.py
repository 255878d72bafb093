"""How much an ad server takes from strangers at once: the `[limits]` table of its `adserver.toml`."""

from typing import Annotated

from pydantic import Field

from maskedlark.parameters.settings import Settings
from maskedlark.wire import codec


class Limits(Settings):
    """The limits of one upload."""

    uploads: Annotated[int, Field(ge=1, le=1 << 16)] = Field(
        default=64, description="read at once; times body_bytes, it bounds memory: uploads = 64"
    )
    body_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=4 << 20, description="the largest upload: body_bytes = 4194304"
    )
    reports: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=4096, description="reports in one upload: reports = 4096"
    )
    report_bytes: Annotated[int, Field(ge=1 << 8, le=codec.MOST_BYTES)] = Field(
        default=codec.MOST_BYTES, description=f"the largest report: report_bytes = {codec.MOST_BYTES}"
    )
    body_within_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60.0, description="seconds from the first to the last byte of a body: body_within_s = 60"
    )
    hours_ahead: Annotated[int, Field(ge=0, le=8760)] = Field(
        default=48,
        description="how far a browser's clock may be ahead. Refused is refused for good: the browser keeps "
        "the report aside, and sends it no more: hours_ahead = 48",
    )
    hours_behind: Annotated[int, Field(ge=1, le=87_600)] = Field(
        default=90 * 24,
        description="how late a report may come; helpers hold it to its lifetime: hours_behind = 2160",
    )
