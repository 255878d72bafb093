"""Files that torch has written, read as data: nothing in them is run. Run by the ad server."""

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from maskedlark.training.errors import NotAModel

_ZIP = b"PK\3\4"
UNREADABLE = (
    RuntimeError, pickle.UnpicklingError, LookupError, TypeError, ValueError, EOFError, AttributeError,
    AssertionError, OSError, MemoryError, OverflowError,
)  # fmt: skip
"""What torch ends in where a file is none of its own, or holds something else."""


def read(path: Path) -> Any:  # noqa: ANN401 - whatever was saved
    """What was saved. Of torch's formats only the newest is read."""
    data = path.read_bytes()
    if not data.startswith(_ZIP):
        raise NotAModel(f"{path} is no file that torch has saved")
    try:
        with warnings.catch_warnings(action="ignore"):  # About files that are none of ours: they are refused.
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise NotAModel(f"{path} is no file that torch has saved: {type(error).__name__}") from None
