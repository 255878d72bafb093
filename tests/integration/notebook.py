"""docs/tutorial.ipynb from docs/TUTORIAL.md: `python -m tests.integration.notebook` writes it anew.

A block of Python is a cell. A block of text after one is what it printed once, and is left out: the notebook
is kept without outputs.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
PAGE, NOTEBOOK = DOCS / "TUTORIAL.md", DOCS / "tutorial.ipynb"
MADE = (
    "*Made from [TUTORIAL.md](TUTORIAL.md) by `python -m tests.integration.notebook`, and kept without "
    "outputs: run it from top to bottom.*\n\n"
)
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


class Cell(NamedTuple):
    """A block of Python, and what it printed when the page was written."""

    code: str
    printed: str


def cells(page: str) -> list[Cell]:
    """The page's Python, in order."""
    found: list[Cell] = []
    for kind, text in _BLOCK.findall(page):
        if kind == "python":
            found.append(Cell(text, ""))
        else:
            found[-1] = found[-1]._replace(printed=text)
    return found


def notebook(page: str) -> str:
    """The same as a notebook, in Jupyter's own form (nbformat 4.5)."""
    parts = _BLOCK.split(page)
    made: list[dict[str, Any]] = []
    for prose, kind, block in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if prose.strip():
            made.append({"cell_type": "markdown", "source": prose.strip() + "\n"})
        if kind == "python":
            empty: dict[str, Any] = {"execution_count": None, "outputs": []}
            made.append({"cell_type": "code", **empty, "source": block.rstrip()})
    title, _, rest = made[0]["source"].partition("\n\n")
    made[0]["source"] = f"{title}\n\n{MADE}{rest}"
    for number, cell in enumerate(made):
        cell.update(id=f"cell-{number}", metadata={}, source=cell["source"].splitlines(keepends=True))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text()))
