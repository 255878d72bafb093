"""Make the test vectors of version 2: `python -m vectors.generate`. The files are the same each time."""

import json
from collections.abc import Callable

from vectors import FOLDER, bad, good
from vectors.good import Vectors

FILES: dict[str, Callable[[], Vectors]] = {
    "shares": good.shares,
    "quantisation": good.quantisation,
    "masks": good.masks,
    "columns": good.encoded,
    "layouts": good.layouts,
    "reports": good.reports,
    "uploads": good.uploaded,
    "keys": good.keys,
    "bad": bad.vectors,
}


def text(name: str) -> str:
    """One file of vectors, as it is stored: one vector a line."""
    lines = [json.dumps(vector, ensure_ascii=False) for vector in FILES[name]()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in FILES:
        (FOLDER / f"{file}.json").write_text(text(file))
