"""The third stage of opening many parts: payloads as rows of bytes, read by their form. Run by a helper.

Only the column hash is one call per record. Payloads of no known form are left to `Opener.read`, the strict
decoder, which reads the candidates of `pair` and of samples, and names what is wrong with bad ones.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire import columns
from maskedlark.wire.acceptance import Verdicts
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.payload import LENGTH, Payload
from maskedlark.wire.payload_form import PayloadForm
from maskedlark.wire.report import Opener

Index = NDArray[np.intp]


class Payloads:
    """Unsealed payloads, one per row. Rows that were taken are done; the others are left."""

    def __init__(
        self, opener: Opener, padded: Sequence[bytes], parts: Index, hashes: ByteRows, verdicts: Verdicts
    ) -> None:
        self.padded, self.parts = padded, parts
        self.rows = sharing.byte_rows(b"".join(padded), opener.size)
        self.lengths = np.ascontiguousarray(self.rows[:, LENGTH]).view(">u4")[:, 0].astype(np.int64)
        self.left = np.ones(len(padded), np.bool_)
        self._opener, self._hashes, self._verdicts = opener, hashes, verdicts

    def take(self, form: PayloadForm) -> Index:
        """The valid rows of this form: columns match their hashes, shares are below p."""
        index = np.flatnonzero(self.left & (self.lengths == form.length))
        index = index[form.layout.matches(self.rows[index])]
        index = index[self._bound(form, index)]
        if self._opener.place == 0:
            index = index[_in_field(self.rows[index, form.secret])]
        self.left[index] = False
        return index

    def strict(self) -> Iterator[tuple[int, Payload]]:
        """The rows that are left, one by one. Refuses what cannot be read."""
        for row in np.flatnonzero(self.left).tolist():
            try:
                found = self._opener.read(self.padded[row], self._hashes[row].tobytes())
            except (DecodeError, Refused) as error:
                self._verdicts.refuse(int(self.parts[row]), error)
                continue
            self.left[row] = False
            yield row, found

    def _bound(self, form: PayloadForm, index: Index) -> NDArray[np.bool_]:
        """Which rows' columns are those of the public part."""
        digest, purpose, shown, salt = columns.digest, self._opener.purpose, form.columns, form.salt
        payloads = [self.padded[row] for row in index.tolist()]
        # Loops over records: a hash is one call each.
        digests = b"".join([digest(data[shown], data[salt], purpose) for data in payloads])
        found = sharing.byte_rows(digests, HASH_BYTES)
        bound: NDArray[np.bool_] = np.all(found == self._hashes[index], axis=1)
        return bound


def _in_field(secrets: ByteRows) -> NDArray[np.bool_]:
    """Which rows' shares are all below p."""
    words = np.ascontiguousarray(secrets).view("<u8")
    below: NDArray[np.bool_] = np.all(words < np.uint64(field.P), axis=1)
    return below
