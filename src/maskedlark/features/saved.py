"""A saved encoder's JSON, read strictly: every key known, every type right, nothing twice."""

import json
from typing import Any, NoReturn, TypeVar

from maskedlark.errors import (
    DuplicateKey,
    MissingKey,
    OutOfRange,
    UnknownKey,
    UnsupportedVersion,
    WrongLength,
    WrongType,
)
from maskedlark.features.errors import NotAnEncoder

FORMAT = "maskedlark encoder"
VERSION = 1

T = TypeVar("T")


class Fields:
    """One JSON object while it is read: every key is taken once, and none may be left."""

    def __init__(self, item: object, where: str) -> None:
        if not isinstance(item, dict):
            raise WrongType(f"{where} is a JSON object; write the encoder again with save()")
        self._left, self._where = dict(item), where

    def done(self) -> None:
        """Refuse keys that nobody took."""
        if self._left:
            raise UnknownKey(
                f"{self._where} has unknown keys {sorted(self._left)}; "
                "remove them, or use the release that wrote them"
            )

    def text(self, key: str) -> str:
        """A text."""
        return _typed(self._take(key), str, self._at(key), "a text")

    def flag(self, key: str) -> bool:
        """True or false."""
        return _typed(self._take(key), bool, self._at(key), "true or false")

    def whole(self, key: str, low: int | None = None, high: int | None = None) -> int:
        """A whole number, in its range where one is given."""
        value = _typed(self._take(key), int, self._at(key), "a whole number")
        if (low is not None and value < low) or (high is not None and value > high):
            raise OutOfRange(f"{self._at(key)} is {low} to {high}; fit the encoder again")
        return value

    def number(self, key: str, largest: float) -> float:
        """A number of magnitude up to `largest`."""
        value = self._take(key)
        number = value if type(value) is int else _typed(value, float, self._at(key), "a number")
        # Not converted before it is compared: a whole number may be beyond all floats.
        if not abs(number) <= largest:
            raise OutOfRange(f"{self._at(key)} is a number of magnitude up to {largest:g}")
        return float(number)

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        """A list of different texts."""
        items = self.items(key)
        if len(items) > most:
            raise WrongLength(f"{self._at(key)} has at most {most} entries; fit the encoder again")
        texts = tuple(_typed(item, str, f"an entry of {self._at(key)}", "a text") for item in items)
        if len(set(texts)) != len(texts):
            raise DuplicateKey(f"{self._at(key)} names something twice; fit the encoder again")
        return texts

    def items(self, key: str) -> list[Any]:
        """A list of anything."""
        return _typed(self._take(key), list, self._at(key), "a list")

    def _at(self, key: str) -> str:
        return f"{key!r} in {self._where}"

    def _take(self, key: str) -> object:
        if key not in self._left:
            raise MissingKey(f"{self._where} lacks {key!r}; write the encoder again with save()")
        return self._left.pop(key)


def _typed(value: object, kind: type[T], where: str, what: str) -> T:
    # Exactly that type: in Python True is a whole number too, in JSON it is not.
    if not isinstance(value, kind) or type(value) is not kind:
        raise WrongType(f"{where} is {what}, not {type(value).__name__}; fit the encoder again")
    return value


def dump(columns: list[dict[str, Any]]) -> str:
    """An encoder's JSON: floats in their shortest exact form, everything else as it is."""
    document = {"format": FORMAT, "version": VERSION, "columns": columns}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def load(text: str) -> list[Any]:
    """The columns of an encoder's JSON, still to be read one by one."""
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise NotAnEncoder("the encoder is no JSON; write it again with save()") from error
    fields = Fields(document, "the encoder")
    if fields.text("format") != FORMAT:
        raise NotAnEncoder(f"this is no encoder: its format is not {FORMAT!r}")
    if (version := fields.whole("version")) != VERSION:
        raise UnsupportedVersion(
            f"the encoder has version {version}, this release reads {VERSION}; "
            "fit it again, or use the release that wrote it"
        )
    columns = fields.items("columns")
    fields.done()
    return columns


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    answer = dict(pairs)
    if len(answer) != len(pairs):
        raise DuplicateKey("the encoder names a key twice; write it again with save()")
    return answer


def _constant(name: str) -> NoReturn:
    raise OutOfRange(f"the encoder holds {name}, which is no JSON number; write it again with save()")


def decode(data: bytes) -> str:
    """The text of a file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAnEncoder("the encoder is no UTF-8 text; write it again with save()") from error
