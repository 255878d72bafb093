"""What a process holds of datasets between two requests, and must not hold once they expired.

Run by a helper's own process, which computes over a dataset of one shard itself, and by its workers.
"""

import sys

from maskedlark.helper import shards

_ON_DEVICES = "maskedlark.exact.resident"


def forget_columns(*_: object) -> None:
    """Close all columns that this process has open, and remove its copies from devices."""
    shards.forget()
    # Without loading torch, where nothing was computed on a device.
    if (resident := sys.modules.get(_ON_DEVICES)) is not None:
        resident.forget()
