"""Run every edit against its tests, in copies of the tree: `scripts/mutants [words of a promise]`.

An edit that no test notices is printed as ALIVE, and the exit code is 1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "vectors", "benches", "pyproject.toml", "README.md")


NOTHING = Mutant("nothing", "README.md", "", "", "")
"""No edit: then all tests of the chosen edits have to pass, or their failures mean nothing."""


def noticed(mutant: Mutant) -> str:
    """The first test that fails with the edit; an empty text if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            place = ROOT / name
            # With what is compiled already and with the times of files: only the edit is compiled anew.
            if place.is_dir():
                shutil.copytree(place, tree / name)
            else:
                shutil.copy2(place, tree / name)
        path = tree / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new, 1))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long"]
        done = subprocess.run(
            [*command, "-p", "no:xdist", *mutant.tests.split()],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (0, 1):
        return f"(pytest ended with {done.returncode})"
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""


def main() -> None:
    """Every edit whose promise holds the words given, two at a time."""
    words = " ".join(sys.argv[1:])
    chosen = [mutant for mutant in MUTANTS if words in mutant.promise]
    began, alive = time.monotonic(), 0
    tests = sorted({each for mutant in chosen for each in mutant.tests.split()})
    nothing = NOTHING._replace(tests=" ".join(tests))
    with ThreadPoolExecutor(2) as pool:
        # What passes without any edit takes longest: it begins first, beside the edits.
        unedited, results = (
            pool.submit(noticed, nothing),
            pool.map(noticed, chosen),
        )
        for mutant, test in zip(chosen, results, strict=True):
            alive += not test
            print(f"{'noticed' if test else 'ALIVE  '}  {mutant.promise}  [{test}]", flush=True)
    if failing := unedited.result():
        sys.exit(f"{failing} fails without any edit: mend it first")
    took = time.monotonic() - began
    print(f"{len(chosen) - alive} of {len(chosen)} edits were noticed, in {took / 60:.0f} minutes")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
