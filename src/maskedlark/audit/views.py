"""What a coalition of helpers sees of a dataset, as rows of numbers for an attacker to learn from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.workflow import Helper

Rows = NDArray[np.float64]


def of_helpers(helpers: Sequence[Helper]) -> Rows:
    """Everything: order, size and public part of the reports, all bytes of the opened payloads, all shares.

    Candidates, tags, features and seeds are bytes of the payloads. Shares are given as bits, each helper's
    and their sum: what a coalition would try first, and what no learner finds by itself.
    """
    records = len(helpers[0].parts)
    together = sharing.combine([helper.opened.shares for helper in helpers])
    seen = [helpers[0].opener.address(part).public for part in helpers[0].parts]
    public = b"".join([part.id + part.column_hash for part in seen])
    shared = [bits(field.to_bytes(together), records), np.frombuffer(public, np.uint8).reshape(records, -1)]
    return np.concatenate([*[_of_helper(helper) for helper in helpers], *shared], axis=1)


def _of_helper(helper: Helper) -> Rows:
    opener = helper.opener
    plain = [opener.address(part).open() for part in helper.parts]
    payloads = np.frombuffer(b"".join(plain), np.uint8).reshape(len(plain), -1)
    sizes = np.array([[len(part)] for part in helper.parts])
    order = np.arange(len(plain))[:, None] / len(plain)
    return np.concatenate(
        [order, sizes, payloads, bits(field.to_bytes(helper.opened.shares), len(plain))], axis=1
    )


def bits(data: bytes, records: int) -> NDArray[np.uint8]:
    """Bytes of equally many records as rows of bits."""
    return np.unpackbits(np.frombuffer(data, np.uint8).reshape(records, -1), axis=1)
