"""Models as a user of torch exports them."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch


def exported(module: torch.nn.Module, shape: tuple[int, ...], **options: Any) -> bytes:
    """As a user of torch exports it. The exporters warn about themselves; that is theirs."""
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(shape),), path, verbose=False, external_data=False, **options)
    return path.read_bytes()
