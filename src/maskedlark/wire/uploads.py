"""Messages between browser and ad server: a batch of reports, and an answer for each.

    batch  = version (1 byte), reports, each a vector with 4 bytes of length
    answer = {"answers": [{"outcome": "stored" | "duplicate" | "later" | "refused", "error"?: name}, …]}  JSON

Answers are in the order of the reports. Stored and duplicate both mean that the ad server has durably stored
the report; later, that it lacks the report's document so far, and the same bytes have to be sent again;
refused, that it will never accept these bytes, for the named error.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from maskedlark.wire import binary
from maskedlark.wire.binary import Reader
from maskedlark.wire.errors import NotAnAnswer, Truncated
from maskedlark.wire.message import Settings

CONTENT_TYPE = "application/vnd.maskedlark.reports"
MAX_ERROR = 64
_LENGTH_BYTES = 4


def encode_batch(reports: Sequence[bytes]) -> bytes:
    """The body of an upload. Run by the browser; the same reports in the same order make the same bytes."""
    assert reports, "an upload has at least one report"
    return binary.VERSION_BYTE + binary.vectors(reports, _LENGTH_BYTES)


def decode_batch(body: bytes, most: int, max_bytes: int) -> list[bytes]:
    """1 to `most` reports of 1 to `max_bytes` bytes, not yet decoded. Run by the ad server."""
    reports = Reader.message(body, "an upload").vectors(_LENGTH_BYTES, most, max_bytes)
    if not reports:
        raise Truncated("an empty upload")
    return reports


class Verdict(StrEnum):
    """The ad server's verdict on a report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    LATER = "later"
    REFUSED = "refused"


class Answer(Settings):
    """The ad server's answer for one report. Depends only on the public part and on sizes."""

    outcome: Verdict
    error: Annotated[str, Field(pattern=rf"^[A-Za-z]{{1,{MAX_ERROR}}}$")] | None = None
    """The name of the error, if the report is refused."""

    @model_validator(mode="after")
    def _refused_says_why(self) -> "Answer":
        if (self.outcome is Verdict.REFUSED) != (self.error is not None):
            raise ValueError("an error's name comes with every refusal, and with nothing else")
        return self


class Answers(Settings):
    """The body of the answer to an upload."""

    answers: tuple[Answer, ...]


_STORED = Answer(outcome=Verdict.STORED)


@lru_cache(maxsize=64)
def _all_stored(count: int) -> bytes:
    """The answer to nearly every upload, which is compared instead of being made and read again."""
    return Answers(answers=(_STORED,) * count).model_dump_json(exclude_none=True).encode()


def encode_answers(answers: Sequence[Answer]) -> bytes:
    """Run by the ad server, when everything that it calls stored is durable."""
    if all(each.outcome is Verdict.STORED for each in answers):
        return _all_stored(len(answers))
    return Answers(answers=tuple(answers)).model_dump_json(exclude_none=True).encode()


def decode_answers(body: bytes, count: int) -> tuple[Answer, ...]:
    """The answers to an upload of that many reports. Run by the browser, which accepts nothing else."""
    if body == _all_stored(count):
        return (_STORED,) * count
    try:
        answers = Answers.model_validate_json(body).answers
    except ValidationError:
        raise NotAnAnswer("the ad server's answer is none to an upload; is the address right?") from None
    if len(answers) != count:
        raise NotAnAnswer(f"the ad server answered for {len(answers)} reports, not for the {count} sent")
    return answers
