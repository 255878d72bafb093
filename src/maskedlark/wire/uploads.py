"""Messages between browser and ad server: a batch of reports, and an answer for each.

    batch  = version, report…      version: 1 byte      report = length (4 bytes, big-endian), that many bytes
    answer = {"answers": [{"outcome": "stored" | "duplicate" | "refused", "error"?: name}, …]}       JSON

Answers are in the order of the reports. Stored and duplicate both mean that the ad server has durably stored
the report; refused, that it will never accept these bytes, for the named error.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from maskedlark.errors import NotAnAnswer, Truncated, UnsupportedVersion, WrongLength

CONTENT_TYPE = "application/vnd.maskedlark.reports"
VERSION = 1
MAX_ERROR = 64
_LENGTH_BYTES = 4


def encode_batch(reports: Sequence[bytes]) -> bytes:
    """The body of an upload. Run by the browser; the same reports in the same order make the same bytes."""
    assert reports, "an upload has at least one report"
    return bytes([VERSION]) + framed(reports, _LENGTH_BYTES)


def decode_batch(body: bytes, most: int, max_bytes: int) -> list[bytes]:
    """1 to `most` reports of 1 to `max_bytes` bytes, not yet decoded. Run by the ad server."""
    if body and body[0] != VERSION:
        raise UnsupportedVersion(f"an upload of version {body[0]}; this package speaks {VERSION}")
    if len(body) < 2:
        raise Truncated("an empty upload")
    return unframed(body, 1, _LENGTH_BYTES, most, max_bytes, ("upload", "report"))


def framed(items: Sequence[bytes], width: int) -> bytes:
    """Each item, preceded by its length as a big-endian number of `width` bytes."""
    return b"".join([part for item in items for part in (len(item).to_bytes(width, "big"), item)])


def unframed(
    data: bytes, at: int, width: int, most: int, max_bytes: int, words: tuple[str, str]
) -> list[bytes]:
    """At most `most` items of 1 to `max_bytes` bytes. `words`: what errors call the whole, and an item."""
    whole, item = words
    items: list[bytes] = []
    while at < len(data):
        if len(items) == most:
            raise WrongLength(f"the {whole} has more than {most} {item}s; send the others apart")
        start = at + width
        if start > len(data):
            raise Truncated(f"the {whole} ends within the length of a {item}")
        length = int.from_bytes(data[at:start], "big")
        if not 1 <= length <= max_bytes:
            raise WrongLength(f"a {item} has 1 to {max_bytes} bytes, not {length}")
        at = start + length
        if at > len(data):
            raise Truncated(f"the {whole} ends within a {item}")
        items.append(data[start:at])
    return items


class Verdict(StrEnum):
    """The ad server's verdict on a report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


class Answer(BaseModel):
    """The ad server's answer for one report. Depends only on the public part and on sizes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Verdict
    error: Annotated[str, Field(pattern=rf"^[A-Za-z]{{1,{MAX_ERROR}}}$")] | None = None
    """The name of the error, if the report is refused."""

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
    """Run by the ad server, when everything that it calls stored is durable."""
    return Answers(answers=tuple(answers)).model_dump_json(exclude_none=True).encode()


def decode_answers(body: bytes, count: int) -> tuple[Answer, ...]:
    """The answers to an upload of that many reports. Run by the browser, which accepts nothing else."""
    try:
        answers = Answers.model_validate_json(body, strict=True).answers
    except ValidationError:
        raise NotAnAnswer("the ad server's answer is none to an upload; is the address right?") from None
    if len(answers) != count:
        raise NotAnAnswer(
            f"the ad server answered for {len(answers)} reports, not for the {count} that were sent"
        )
    return answers
