"""What docs/TUTORIAL.md says happens: its cells as a script and in a kernel, its commands in a shell."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.integration.notebook import NOTEBOOK, PAGE, Cell, cells, notebook

TEXT = PAGE.read_text()
CELLS = cells(TEXT)
PATIENCE_S = 600
"""No assertion is about time; a test that hangs for this long has failed."""
NEXT = "\x1e"
FEWER = {
    "visitors(6_000, seed=1)": "visitors(6_000, seed=1).head(2_000)",
    "steps=60": "steps=12",
    "    epsilon=2.0": "    noise=3.2",
}
"""What makes the page's own code quick: fewer people and steps, and no search for the noise."""
BIN = Path(sys.executable).parent


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


def consoles() -> list[str]:
    """Commands that the page tells to type, block by block."""
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^\$ ", "", block, flags=re.MULTILINE) for block in blocks]


@pytest.mark.long
def test_the_commands_do_the_same(tmp_path):
    ran(CELLS[:1], tmp_path)
    simulate, ask, train, verify = consoles()
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "100", "TERM": "dumb"}
    with (tmp_path / "log").open("w") as log:
        playing = subprocess.Popen(
            ["bash", "-c", f"exec {simulate}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with playing:
        try:
            assert playing.stdout is not None
            assert playing.stdout.readline().startswith("Ready"), (tmp_path / "log").read_text()
            said = typed(ask, tmp_path, environment)
            assert re.search(r"^video +\d+", said, re.MULTILINE)
            assert "against the ad server and against it with all helpers but one" in said
            assert re.search(r"model.json: charged ε = (1|0\.99\d*) against everybody", said)
            assert re.search(r"^AUC 0\.\d+ ± 0\.\d+, log-loss", said, re.MULTILINE)
            assert "scores.csv: 6000 rows predicted" in said
            said = typed(train, tmp_path, environment)
            assert "against the ad server alone" in said
            assert re.search(r"model.pt: trained \d+ steps", said)
            assert re.search(r"AUC 0\.\d+ ± ", said)
            assert "questions answered" in typed(verify, tmp_path, environment)
            [python] = re.findall(r"^```py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
            [[predicted]] = [re.findall(r"0\.\d+", each) for each in ran([Cell(python, "")], tmp_path)]
            assert float(predicted) > 0.5
        finally:
            playing.send_signal(signal.SIGINT)
            playing.wait(PATIENCE_S)


def typed(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """What commands print in a shell that stops at the first that fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout
