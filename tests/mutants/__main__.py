"""Run every edit against its tests, in copies of the tree: `scripts/mutants [words of a promise]`.

An edit that no test notices is printed as ALIVE, and the exit code is 1. So it is if one is BROKEN: with it
pytest ran no test, as the code cannot be imported or a test has another name, and nothing was noticed.
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


class NothingRan(Exception):
    """Pytest ended before it ran its tests."""


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
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        # A test that is named is run, however long it takes; of whole files the others are enough.
        tests = mutant.tests.split()
        some = [] if all("::" in each for each in tests) else ["-m", "not long"]
        done = subprocess.run(
            [*command, *some, *tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
    return failing(done.returncode, done.stdout)


def failing(code: int, output: str) -> str:
    """The first test that pytest says failed; an empty text if all passed."""
    if code not in (0, 1):
        raise NothingRan(f"pytest ended with {code}: no test noticed anything")
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""


def outcome(mutant: Mutant) -> tuple[str, str]:
    """A word for what came of an edit, and the test that noticed it or what is wrong with the table."""
    try:
        test = noticed(mutant)
    except NothingRan as error:
        return "BROKEN ", str(error)
    return "noticed" if test else "ALIVE  ", test


def main() -> None:
    """Every edit whose promise holds the words given, two at a time."""
    words = " ".join(sys.argv[1:])
    chosen = [mutant for mutant in MUTANTS if words in mutant.promise]
    began, seen = time.monotonic(), 0
    tests = sorted({each for mutant in chosen for each in mutant.tests.split()})
    nothing = NOTHING._replace(tests=" ".join(tests))
    with ThreadPoolExecutor(2) as pool:
        # What passes without any edit takes longest: it begins first, beside the edits.
        unedited, results = (
            pool.submit(outcome, nothing),
            pool.map(outcome, chosen),
        )
        for mutant, (word, test) in zip(chosen, results, strict=True):
            seen += word == "noticed"
            print(f"{word}  {mutant.promise}  [{test}]", flush=True)
    word, test = unedited.result()
    if word != "ALIVE  ":
        sys.exit(f"without any edit: {test}. Mend it first")
    took = time.monotonic() - began
    print(f"{seen} of {len(chosen)} edits were noticed, in {took / 60:.0f} minutes")
    sys.exit(seen < len(chosen))


if __name__ == "__main__":
    main()
