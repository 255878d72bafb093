"""What docs/TUTORIAL.md says happens: its cells as a script and in a kernel, its commands in a shell."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.integration.notebook import NOTEBOOK, PAGE, Cell, cells, notebook
from tests.integration.terminal import (
    PATIENCE_S,
    charged,
    consoles,
    playing,
    typed,
    typed_again,
    typed_twice,
)

TEXT = PAGE.read_text()
CELLS = cells(TEXT)
NEXT = "\x1e"
FEWER = {
    "visitors(6_000, seed=1)": "visitors(6_000, seed=1).head(2_000)",
    "steps=60": "steps=12",
    "    epsilon=2.0": "    noise=3.2",
}
"""What makes the page's own code quick: fewer people and steps, and no search for the noise."""


def shape(printed: str) -> list[str]:
    """What was printed, without numbers, which differ in every run, and each form of line once."""
    without = re.sub(r"\b[0-9a-f]{32}\b|-?\d[\d,]*(\.\d+)?(e-?\d+)?", "#", printed).replace(" ]", "]")
    lines = [" ".join(line.split()) for line in without.splitlines()]
    return [line for place, line in enumerate(lines) if line and line not in lines[:place]]


def test_the_notebook_is_the_page():
    assert NOTEBOOK.read_text() == notebook(TEXT)


def test_the_page_shows_what_every_cell_prints():
    assert [bool(cell.printed) for cell in CELLS] == ["print(" in cell.code for cell in CELLS]


def ran(made: Sequence[Cell], folder: Path) -> list[str]:
    """What each cell prints, run as one script in which a warning is an error."""
    script = folder / "script.py"
    script.write_text(f"print({NEXT!r}, end='')\n".join(cell.code for cell in made))
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split(NEXT)


def fewer(cell: Cell) -> Cell:
    code = cell.code
    for old, new in FEWER.items():
        code = code.replace(old, new)
    return cell._replace(code=code)


@pytest.mark.long
def test_the_cells_run_as_a_script_and_print_what_the_page_shows(tmp_path):
    assert all(any(old in cell.code for cell in CELLS) for old in FEWER)
    printed = ran([fewer(cell) for cell in CELLS], tmp_path)
    for cell, found in zip(CELLS, printed, strict=True):
        # Of few people, every bucket may be too small to be shown.
        assert shape(found) == shape(cell.printed) or (not found and "calibration" in cell.code), cell.code


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom_in_a_kernel(tmp_path):
    read = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.outputs == [] for cell in read.cells if cell.cell_type == "code")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(read, timeout=PATIENCE_S, kernel_name="python3", resources=resources).execute()
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    for cell, found in zip(CELLS, code, strict=True):
        assert {output.get("name") for output in found.outputs} <= {"stdout"}, found.outputs
        assert shape("".join(output.text for output in found.outputs)) == shape(cell.printed)


@pytest.mark.long
def test_the_commands_do_the_same_and_typed_again_cost_nothing_more(tmp_path):
    ran(CELLS[:1], tmp_path)
    [simulate], ask, train, [variables, verify] = consoles(TEXT)
    with playing(simulate, tmp_path):
        typed_again(simulate, tmp_path)  # It says that it is running, and how to stop it.
        query, explained, fit, planned, evaluated, predicted = (typed_twice(each, tmp_path) for each in ask)
        assert re.search(r"^video +\d+", query, re.MULTILINE)
        assert "against the ad server and against it with all helpers but one" in explained
        assert re.search(r"model.json: charged ε = (1|0\.99\d*) against everybody", fit)
        assert "Nothing was spent" in planned
        assert re.search(r"^AUC 0\.\d+ ± 0\.\d+, log-loss", evaluated, re.MULTILINE)
        assert "scores.csv: 6000 rows predicted" in predicted
        planned, trained, recalibrated = (typed_twice(each, tmp_path) for each in train)
        assert "against the ad server alone" in planned
        assert re.search(r"model.pt: trained \d+ steps", trained)
        assert re.search(r"AUC 0\.\d+ ± ", recalibrated)
        assert "model.pt: recalibrated, logits times" in recalibrated
        assert charged(tmp_path) == ["sums", "moments", "cells", "gradient", "cells"]
        # Who types the whole block again does not undo what was set right.
        kept = (tmp_path / "play" / "model.pt").read_bytes()
        for command in train:
            typed_again(command, tmp_path)
        assert (tmp_path / "play" / "model.pt").read_bytes() == kept
        for _ in range(2):
            assert "queries answered" in typed(f"{variables}\n{verify}", tmp_path)
        [python] = re.findall(r"^```py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
        [[predicted]] = [re.findall(r"0\.\d+", each) for each in ran([Cell(python, "")], tmp_path)]
        assert float(predicted) > 0.5
