"""What a report is for. The two purposes are separate reports, never one."""

from enum import StrEnum


class Purpose(StrEnum):
    """Bound into every share, payload and public part."""

    AGGREGATE = "aggregate"
    """Sums and counts of conversion values by key (the paper's section 3.3)."""

    TRAIN = "train"
    """Masked functions of features and label, such as gradients (section 4)."""

    @property
    def byte(self) -> bytes:
        """The purpose on the wire and in hashes."""
        return b"\x01" if self is Purpose.AGGREGATE else b"\x02"
