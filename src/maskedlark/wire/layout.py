"""Layouts: messages of one kind differ only in a few spans of bytes, so many are recognised at once.

A layout is made with the encoder itself: where a message's bytes differ when one field is changed, there the
field is. A message with the same bytes everywhere else is in its canonical encoding. Run by helpers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.sharing import ByteRows


def span(one: bytes, other: bytes) -> slice:
    """Where two messages of one length differ: from the first such byte to the last."""
    where = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
    return slice(int(where[0]), int(where[-1]) + 1) if where.size else slice(0, 0)


def inverted(data: bytes) -> bytes:
    """Every byte changed, so that `span` finds all of them."""
    return (~np.frombuffer(data, np.uint8)).tobytes()


def spans(make: Callable[..., bytes], usual: Mapping[str, bytes]) -> dict[str, slice]:
    """Where each field is in the message made of them: the bytes that change with it."""
    message = make(**usual)
    return {name: span(message, make(**{**usual, name: inverted(data)})) for name, data in usual.items()}


@dataclass(frozen=True, repr=False)
class Layout:
    """The bytes that all messages of a kind have in common, and where they are."""

    message: NDArray[np.uint8]
    fixed: NDArray[np.uint8]
    """255 where the messages are the same, 0 where they vary."""

    @classmethod
    def of(cls, message: bytes, varying: Sequence[slice]) -> "Layout":
        """The layout of a message whose other bytes never change."""
        fixed = np.full(len(message), 255, np.uint8)
        for each in varying:
            fixed[each] = 0
        return cls(np.frombuffer(message, np.uint8), fixed)

    def matches(self, rows: ByteRows) -> NDArray[np.bool_]:
        """Which of the rows are messages of this kind."""
        differing: NDArray[np.bool_] = np.any((rows ^ self.message) & self.fixed, axis=1)
        return ~differing
