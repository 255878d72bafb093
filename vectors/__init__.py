"""Test vectors: the contract for clients in every language. Those of a version never change."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "v1"
SECOND = Path(__file__).parent / "v2"
"""What is of version 2: what helpers have in common."""


def load(name: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The vectors of one file."""
    vectors: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    return vectors
