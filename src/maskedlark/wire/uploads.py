"""What crosses the line between browser and ad server: a batch of reports, and an answer for each.

    batch  = version, report…      version: 1 byte      report = length (4 bytes, big-endian), that many bytes
    answer = {"answers": [{"outcome": "stored" | "duplicate" | "refused", "error"?: name}, …]}       JSON

Answers come in the order of the reports. Stored and duplicate both mean that the ad server has the report for
good; refused, that it will never take these bytes, and the error's name says why.
"""

import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from maskedlark.errors import NotAnAnswer, Truncated, UnsupportedVersion, WrongLength

CONTENT_TYPE = "application/vnd.maskedlark.reports"
VERSION = 1
MOST_ERROR = 64
_LENGTH = struct.Struct(">I")


def encode_batch(reports: Sequence[bytes]) -> bytes:
    """The body of an upload. Run by the browser; the same reports in the same order make the same bytes."""
    assert reports, "an upload has at least one report"
    framed = [part for report in reports for part in (_LENGTH.pack(len(report)), report)]
    return bytes([VERSION]) + b"".join(framed)


def decode_batch(body: bytes, most: int, most_bytes: int) -> list[bytes]:
    """1 to `most` reports of 1 to `most_bytes` bytes, not yet looked at. Run by the ad server."""
    if not body:
        raise Truncated("an empty upload")
    if body[0] != VERSION:
        raise UnsupportedVersion(f"an upload of version {body[0]}; this package speaks {VERSION}")
    reports: list[bytes] = []
    at = 1
    while at < len(body) or not reports:
        if len(reports) == most:
            raise WrongLength(f"an upload has at most {most} reports; send the others apart")
        at = _take(body, at, most_bytes, reports)
    return reports


def _take(body: bytes, at: int, most_bytes: int, reports: list[bytes]) -> int:
    """Read one report into the list; returns where the next one begins."""
    start = at + _LENGTH.size
    if start > len(body):
        raise Truncated("an upload ends within the length of a report")
    length: int = _LENGTH.unpack_from(body, at)[0]
    if not 1 <= length <= most_bytes:
        raise WrongLength(f"a report in an upload has 1 to {most_bytes} bytes, not {length}")
    if start + length > len(body):
        raise Truncated("an upload ends within a report")
    reports.append(body[start : start + length])
    return start + length


class Verdict(StrEnum):
    """What the ad server says of a report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


class Answer(BaseModel):
    """The ad server's answer for one report. Depends on the public part and on sizes, on nothing sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Verdict
    error: Annotated[str, Field(pattern=rf"^[A-Za-z]{{1,{MOST_ERROR}}}$")] | None = None
    """The name of the error, where the report is refused."""

    @model_validator(mode="after")
    def _refused_says_why(self) -> "Answer":
        if (self.outcome is Verdict.REFUSED) != (self.error is not None):
            raise ValueError("an error's name comes with every refusal, and with nothing else")
        return self


class Answers(BaseModel):
    """The body of the answer to an upload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    answers: tuple[Answer, ...]


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """Run by the ad server, when all that it calls stored is durable."""
    return Answers(answers=tuple(answers)).model_dump_json(exclude_none=True).encode()


def decode_answers(body: bytes, count: int) -> tuple[Answer, ...]:
    """The answers to an upload of that many reports. Run by the browser, which believes nothing else."""
    try:
        answers = Answers.model_validate_json(body, strict=True).answers
    except ValidationError:
        raise NotAnAnswer("the ad server's answer is none to an upload; is the address right?") from None
    if len(answers) != count:
        raise NotAnAnswer(
            f"the ad server answered for {len(answers)} reports, not for the {count} that were sent"
        )
    return answers
