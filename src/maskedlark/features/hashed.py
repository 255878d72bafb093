"""Categories hashed to buckets, one byte each: any number of them, and no list of them in public."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import NotDeclared, WrongLength
from maskedlark.features.category import texts
from maskedlark.features.column import Column
from maskedlark.features.kind import MOST_BYTES, Fitted, Kind, Rows, check_indicator, check_whole, spread
from maskedlark.features.saved import Fields

SALT = "maskedlark"
MOST_SALT = 64
"""BLAKE2b's longest key, in bytes."""
_PERSON = b"maskedlark hash1"
"""Fixed at 16 bytes: what separates these hashes from any other use of BLAKE2b."""


@dataclass(frozen=True)
class Hashed(Kind):
    """A category's bucket by BLAKE2b, keyed with a declared salt: stable across runs, machines, releases.

    The salt is public and hides nothing: whoever guesses a category can check its bucket. Another salt
    makes other categories collide.
    """

    buckets: int
    salt: str = SALT
    indicator: bool | None = None

    def __post_init__(self) -> None:
        check_indicator(self.indicator)
        check_whole(self.buckets, 1, MOST_BYTES, "the number of buckets")
        if not _is_salt(self.salt):
            raise NotDeclared(f"a salt is a text of at most {MOST_SALT} bytes; declare a shorter one")

    def fit(self, column: Column, least: int) -> "HashedColumn":  # noqa: ARG002 - it shows no category
        """Nothing to fit but the indicator; what cannot be hashed is refused now, not at serving."""
        texts(column)
        return HashedColumn(column.name, self.wants_indicator(column.absent), self.buckets, self.salt)


@dataclass(frozen=True)
class HashedColumn(Fitted):
    """Buckets. A missing value is in none."""

    kind: ClassVar[str] = "hashed"

    buckets: int
    salt: str

    def own_names(self) -> list[str]:
        """One a bucket."""
        return [f"{self.name} in bucket {bucket} of {self.buckets}" for bucket in range(self.buckets)]

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """One hash a distinct category."""
        present = np.array([self.bucket(text) for text in texts(column)], np.intp)
        return spread(present, column.absent, -1, self.buckets), column.absent

    def bucket(self, text: str) -> int:
        """The column's name is hashed too, its length first: columns do not collide alike."""
        name = _octets(self.name)
        data = len(name).to_bytes(4, "big") + name + _octets(text)
        digest = blake2b(data, digest_size=8, key=_octets(self.salt), person=_PERSON).digest()
        return int.from_bytes(digest, "big") % self.buckets

    @classmethod
    def read(cls, fields: Fields) -> "HashedColumn":
        """From a saved encoder."""
        fitted = cls(
            name=fields.text("name"),
            indicator=fields.flag("indicator"),
            buckets=fields.whole("buckets", 1, MOST_BYTES),
            salt=fields.text("salt"),
        )
        if not _is_salt(fitted.salt):
            raise WrongLength(
                f"column {fitted.name!r} has a salt of more than {MOST_SALT} bytes; fit it again"
            )
        return fitted


def _is_salt(salt: object) -> bool:
    return isinstance(salt, str) and len(_octets(salt)) <= MOST_SALT


def _octets(text: str) -> bytes:
    # Texts that were read with errors="surrogateescape" have a hash too.
    return text.encode("utf-8", "surrogatepass")
