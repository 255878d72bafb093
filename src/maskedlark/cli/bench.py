"""`maskedlark bench`: how fast one part is, ours beside a peer."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.cli import clone
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json
from maskedlark.core.suggestions import did_you_mean

EXAMPLE = "Example: maskedlark bench core --json"
_SHARED = {"__init__", "__main__", "timing"}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
app = typer.Typer(add_completion=False)


@app.command("bench", epilog=EXAMPLE)
@plainly
def bench(
    name: Annotated[str, typer.Argument(help="Which: core, store, ingest, groupby, gradient, training, …")],
    as_json: Json = False,
) -> None:
    """Measure how fast one part is. Needs a clone of the repository."""
    place = clone.root("benches")
    names = _names(place)
    if name not in names:
        raise typer.BadParameter(f"there is no bench {name!r}; {did_you_mean(name, names)}")
    command = [sys.executable, "-m", "benches", name, *(["--json"] if as_json else [])]
    # A process of its own: how many threads there are is settled before numpy is loaded.
    done = subprocess.run(command, cwd=place, env={**os.environ, **_ONE_THREAD}, check=False)  # noqa: S603
    if done.returncode:
        raise typer.Exit(1)


def _names(place: Path) -> list[str]:
    return sorted({path.stem for path in (place / "benches").glob("*.py")} - _SHARED)
