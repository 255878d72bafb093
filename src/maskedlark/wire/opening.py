"""Opening many parts of reports at once, into columns. Run by a helper on what the ad server sent it.

Stage by stage, not report by report: one HPKE call after the other finds its code in the processor's cache.
All but HPKE and hashes is done on arrays. `Opener.open` does it for one part; tests hold the two together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.declared import Measure
from maskedlark.core.records import Measured, Records, Trained
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import CannotOpen
from maskedlark.wire import measured, trained
from maskedlark.wire.addressing import Addressing
from maskedlark.wire.payloads import Index, Payloads
from maskedlark.wire.report import Opener
from maskedlark.wire.verdicts import Verdicts

_BLOCK = 1024
"""So many HPKE calls follow each other with nothing between them. More would only hold more bytes twice."""


@dataclass(frozen=True, repr=False)
class Opened:
    """What a helper holds of the parts that it accepted, in their order, and why it refused the others."""

    verdicts: Verdicts
    """Over all parts that came."""
    ids: ByteRows
    """(n, 16), of the accepted ones, as all that follows."""
    hours: NDArray[np.uint32]
    column_hashes: ByteRows
    """(n, 32)."""
    records: Measured | Mapping[str, Trained]
    """To aggregate: all of them. To train: by tag, for those tags that occur."""
    places: Mapping[str, Index]
    """To train: which of the accepted ones are a tag's records. Empty to aggregate."""

    def of(self, tag: str | None) -> Records:
        """The records of one model, or with no tag those to aggregate."""
        if isinstance(self.records, Measured):
            assert tag is None, "records to aggregate have no tag"
            return self.records
        assert tag is not None, "records to train have a tag"
        return self.records[tag]


def open_parts(opener: Opener, parts: Sequence[bytes]) -> Opened:
    """Open, check and expand many parts. A bad one spoils no other.

    Takes about twice the bytes of the parts while it runs: give it some thousands at a time.
    """
    verdicts = Verdicts(len(parts))
    public = Addressing(opener, parts, verdicts)
    padded = _unseal(public, verdicts)
    unsealed = np.flatnonzero(verdicts.accepted)
    payloads = Payloads(opener, padded, unsealed, public.column_hashes[unsealed], verdicts)
    records: Measured | dict[str, Trained]
    if isinstance(opener.declared, Measure):
        records, rows = measured.read(opener, opener.declared, payloads, public.ids[unsealed]), {}
    else:
        found = trained.read(opener, payloads, public.ids[unsealed])
        records = {tag: each for tag, (_, each) in found.items()}
        rows = {tag: index for tag, (index, _) in found.items()}
    accepted = np.flatnonzero(verdicts.accepted)
    places = {tag: np.searchsorted(accepted, unsealed[index]) for tag, index in rows.items()}
    return Opened(
        verdicts,
        public.ids[accepted],
        public.hours[accepted],
        public.column_hashes[accepted],
        records,
        places,
    )


def _unseal(public: Addressing, verdicts: Verdicts) -> list[bytes]:
    """The payloads of all parts that open. A loop over records: HPKE is a call each."""
    padded, parts = [], np.flatnonzero(verdicts.accepted).tolist()
    for start in range(0, len(parts), _BLOCK):
        block = parts[start : start + _BLOCK]
        for part, (key, sealed, info) in zip(block, public.envelopes(block), strict=True):
            try:
                padded.append(key.open(sealed, info))
            except CannotOpen as error:
                verdicts.refuse(part, error)
    return padded
