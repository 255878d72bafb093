"""Test vectors: the contract for clients in every language. Those of a published version never change.

    python -m vectors.generate      makes v2/*.json again, from fixed randomness: the same each time
    python -m vectors.of_helpers    makes again what helpers share: batches, answer-masks, moments, cells,
                                    check-keys and check-messages

docs/PROTOCOL.md says what is in each file.

`v1` holds those of the first wire format, which this package no longer speaks.
"""

import json
from pathlib import Path
from typing import Any

FIRST = Path(__file__).parent / "v1"
FOLDER = SECOND = Path(__file__).parent / "v2"


def written(vectors: list[dict[str, Any]]) -> str:
    """A file of vectors, as it is stored: one vector a line."""
    lines = [json.dumps(vector, ensure_ascii=False) for vector in vectors]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def load(name: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The vectors of one file."""
    vectors: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
    return vectors
