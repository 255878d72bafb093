"""The built wheel installs and runs outside the clone, and holds the package alone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

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


def test_the_wheel_runs_outside_the_clone(tmp_path):
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        tmp_path / "dist",
        cwd=ROOT,
    )
    [wheel] = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("maskedlark/", "maskedlark-")) for name in names)
    assert "maskedlark/py.typed" in names
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    # The wheel comes first on the path; what it depends on is the environment's.
    where = run(
        sys.executable,
        "-c",
        "import maskedlark; print(maskedlark.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(target),
    )
    assert where.startswith(str(target))
    shown = run(
        sys.executable, "-m", "maskedlark", "demo", "--users", "1500", cwd=tmp_path, PYTHONPATH=str(target)
    )
    assert "finds no state" in shown
