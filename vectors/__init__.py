"""Test vectors: the contract for clients in every language."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "v1"


def load(name: str) -> list[dict[str, Any]]:
    """The vectors of one file."""
    vectors: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return vectors
