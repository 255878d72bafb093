"""The built wheel installs and runs outside the clone, and holds the package alone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with nothing but the wheel, unpacked."""
    folder: Path = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        folder / "dist",
        cwd=ROOT,
    )
    [wheel] = (folder / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("maskedlark/", "maskedlark-")) for name in names)
    assert "maskedlark/py.typed" in names
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_runs_outside_the_clone(installed, tmp_path):
    # The wheel comes first on the path; what it depends on is the environment's.
    code = "import maskedlark; print(maskedlark.__file__)"
    where = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert where.startswith(str(installed))
    init = ["-m", "maskedlark", "parameters", "keys", "service.key"]
    assert len(run(sys.executable, *init, cwd=tmp_path, PYTHONPATH=str(installed)).strip()) == 64


def test_the_wheel_holds_every_module(installed):
    source = ROOT / "src"
    wanted = {path.relative_to(source) for path in source.rglob("*.py")}
    assert {path.relative_to(installed) for path in installed.rglob("*.py")} == wanted


@pytest.mark.parametrize(
    "name", ["paper", "sum", "own_function", pytest.param("train", marks=pytest.mark.long)]
)
def test_an_example_runs_from_the_wheel(name, installed, tmp_path):
    shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    printed = run(sys.executable, "-W", "error", f"{name}.py", cwd=tmp_path, PYTHONPATH=str(installed))
    assert len(printed.splitlines()) >= 3


@pytest.mark.long
def test_the_demo_runs_from_the_wheel(installed, tmp_path):
    demo = [sys.executable, "-m", "maskedlark", "demo", "--users", "1500"]
    shown = " ".join(run(*demo, cwd=tmp_path, PYTHONPATH=str(installed)).split())
    assert "The receipts of all 2 helpers verify" in shown
    assert "finds no state" in shown
