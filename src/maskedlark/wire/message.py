"""JSON values: frozen, closed, with strict types. Read from others, errors never repeat what they hold."""

import json
import re
from collections import Counter
from typing import Annotated, Any, ClassVar, Self

import rfc8785
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from maskedlark.errors import MaskedLarkError, WrongType

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
MAX_FAULTS, MAX_COUNTED, MAX_SAID = 3, 1000, 500
"""How many faults are reported, how many are examined, and how many characters a report has."""
_PLAINER = (
    (re.compile(r"^\w+ should have (at (?:least|most) \d+ items?) after validation, "), r"\1, "),
    (
        re.compile(r"^String should match pattern '\^\[A-Za-z0-9([^\]]+)\]\+\$'$"),
        r"use letters, digits, and any of '\1'",
    ),
)
"""What pydantic says in words of its types, and the same of what was typed."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


class Settings(BaseModel):
    """Frozen, strict, and closed: an unknown key is refused, and one that is given twice."""

    model_config = STRICT

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:  # noqa: ANN401
        """As pydantic does, whose parser takes the last of several equal keys: another may take the first."""
        refuse_duplicates(json_data)
        return super().model_validate_json(json_data, **options)


def refuse_duplicates(data: str | bytes | bytearray) -> None:
    """Raise pydantic's ValidationError if an object has a key twice. What is no JSON is left to pydantic."""
    try:
        json.loads(data, object_pairs_hook=unique, parse_int=str, parse_float=str)
    except ValidationError:
        raise
    except (RecursionError, ValueError):
        return


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these pairs, for `json.loads`: raises ValidationError if it has a key twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        fault = PydanticCustomError("duplicate_key", "this key is given twice")
        raise ValidationError.from_exception_data("JSON", [{"type": fault, "loc": (name,), "input": None}])
    return made


class Canonical(Settings):
    """A value with one encoding: canonical JSON (RFC 8785)."""

    def encode(self) -> bytes:
        """The bytes that are signed, hashed and published."""
        return rfc8785.dumps(json.loads(self.model_dump_json()))


class Encoded(Settings):
    """A value that is sent as one line of JSON."""

    def encode(self) -> bytes:
        """JSON for the wire. The same value makes the same bytes, so that a retry sends the same."""
        return self.model_dump_json().encode()


class Message(Encoded):
    """One that is read with a limit, before anything is known of its sender."""

    max_commas: ClassVar[int] = 64
    """More than any valid message has."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode. Errors name what is wrong and where, never the content."""
        # Before parsing: a list of a million wrong items would make a million errors.
        if data.count(b",") > cls.max_commas:
            raise cls.refusal(f"more than {cls.max_commas} commas: no {cls.__name__.lower()} holds so much")
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise cls.refusal(faults(error)) from None

    @classmethod
    def refusal(cls, why: str) -> MaskedLarkError:
        """The error for what is no such message."""
        return WrongType(why)


def faults(error: ValidationError) -> str:
    """What is wrong, and where: names and rules, never the values. The first few, in short."""
    if error.error_count() > MAX_COUNTED:  # Examining each would cost more than creating them did.
        return f"{error.error_count()} things are wrong"
    faults = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]
    return "; ".join(map(_fault, faults))[:MAX_SAID]


def _fault(fault: ErrorDetails) -> str:
    # A draft's author needs to see an unknown name; from others, only plain words are repeated.
    place = [name for name in fault["loc"] if isinstance(name, int) or _PLAIN.fullmatch(name)]
    said = fault["msg"].removeprefix("Value error, ")
    for form, plain in _PLAINER:
        said = form.sub(plain, said)
    return ": ".join(filter(None, [".".join(map(str, place)), said]))
