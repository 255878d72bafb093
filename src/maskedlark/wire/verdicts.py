"""Verdicts: what a helper says of every part that it was sent, accepted or the name of the error."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

ACCEPTED = 0


class Verdicts:
    """One byte a part, in the order in which they came: accepted until refused."""

    def __init__(self, parts: int) -> None:
        self.codes: NDArray[np.uint8] = np.full(parts, ACCEPTED, np.uint8)
        self.names: list[str] = []
        """The errors that occur; code 1 is the first."""

    def refuse(self, part: int, error: Exception) -> None:
        """Record why a part is not used. The first reason stays the only one: nobody looks at it again."""
        name = type(error).__name__
        if name not in self.names:
            self.names.append(name)
        self.codes[part] = 1 + self.names.index(name)

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """One truth value a part."""
        accepted: NDArray[np.bool_] = self.codes == ACCEPTED
        return accepted

    @property
    def refused(self) -> Counter[str]:
        """How many, by the name of the error."""
        counts = np.bincount(self.codes, minlength=1 + len(self.names))[1:]
        return Counter(dict(zip(self.names, counts.tolist(), strict=True)))

    def __getitem__(self, part: int) -> str | None:
        """The name of the error, or none for a part that is accepted."""
        code = int(self.codes[part])
        return None if code == ACCEPTED else self.names[code - 1]

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Verdicts({int(self.accepted.sum())} of {len(self)} accepted, refused: {dict(self.refused)})"
