"""The demo, played once for all tests: it is the dearest of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from maskedlark.cli import app
from maskedlark.web import files

COLUMNS = 80


@dataclass(frozen=True)
class Played:
    """What it showed, and what it left."""

    shown: str
    figures: dict[str, Any]
    page: Path


def played(factory: pytest.TempPathFactory, worker: str) -> Played:
    """One run of `maskedlark demo --json`, whichever process of the tests comes first."""
    base = factory.getbasetemp()
    # Processes of one run share the folder above: it is this run's alone only where there are several.
    folder = (base if worker == "master" else base.parent) / "demo"
    page, shown, figures = folder / "page.html", folder / "shown.txt", folder / "figures.json"
    with files.locked(folder):
        if not figures.exists():
            runner = CliRunner(env={"COLUMNS": str(COLUMNS), "TERM": "dumb"})
            done = runner.invoke(app, ["demo", "--json", "--page", str(page)])
            assert done.exit_code == 0, done.output
            shown.write_text(done.stderr)
            figures.write_text(done.stdout)
    return Played(shown.read_text(), json.loads(figures.read_text()), page)
