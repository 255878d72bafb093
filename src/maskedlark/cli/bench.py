"""`maskedlark bench` and `experiment`, which need a clone of the repository: the wheel has neither."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import maskedlark
from maskedlark.cli import signals
from maskedlark.cli.error_handling import command
from maskedlark.cli.options import Json
from maskedlark.cli.output import print_result
from maskedlark.core.suggestions import did_you_mean
from maskedlark.errors import MaskedLarkError

_SHARED = {"__init__", "__main__", "timing"}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
app = typer.Typer()


class NoClone(MaskedLarkError):
    """A command that needs the repository, where there is none."""


@command(app, "bench core --json")
def bench(
    name: Annotated[str, Argument(help="Which: core, store, ingest, groupby, gradient, training, …")],
    as_json: Json = False,
) -> None:
    """Measure how fast one part is. Needs a clone of the repository."""
    root = _root("benches")
    _check("bench", name, sorted({path.stem for path in (root / "benches").glob("*.py")} - _SHARED))
    line = [sys.executable, "-m", "benches", name, *(["--json"] if as_json else [])]
    # A separate process, because the number of threads is fixed when numpy is loaded.
    done = subprocess.run(line, cwd=root, env={**os.environ, **_ONE_THREAD}, check=False)  # noqa: S603
    if done.returncode:
        raise typer.Exit(1)


@command(app, "experiment all --quick")
def experiment(
    names: Annotated[list[str], Argument(help="Figures by name, or all.")],
    quick: Annotated[bool, Option("--quick", help="A look: under five minutes for all.")] = False,
    full: Annotated[bool, Option("--full", help="The authors' whole grid: hours.")] = False,
    fresh: Annotated[bool, Option("--fresh", help="Compute every run again, whatever is there.")] = False,
    out: Annotated[Path | None, Option(help="For plots, numbers and the page; else docs/results.")] = None,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the paper, or one of ours. Needs a clone of the repository."""
    if quick and full:
        raise typer.BadParameter("give --quick or --full, not both")
    root, size = _root("experiments"), "quick" if quick else "full" if full else "default"
    for name in names:
        _check("experiment", name, [*_module(root, "experiments.figures").NAMES, "all"])
    # Only the default size replaces the page.
    folder = out or (root / "docs/results" if size == "default" else root / f"build/results-{size}")
    main, sized = _module(root, "experiments.running").main, _module(root, "experiments.size").Size(size)
    with signals.as_interrupts():
        code = main(names, sized, folder, lambda line: typer.echo(line, err=True), fresh)
    print_result({"experiments": names, "size": size, "out": str(folder), "drawn": code == 0}, as_json)
    if code:
        raise typer.Exit(code)


def _check(kind: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise typer.BadParameter(f"there is no {kind} {name!r}; {did_you_mean(name, known)}")


def _root(package: str) -> Path:
    """The repository that holds this package: around these files, or the current folder."""
    own = Path(maskedlark.__file__).resolve().parents[2]
    for place in (own, Path.cwd()):
        if (place / package / "__init__.py").exists() and (place / "src" / "maskedlark").exists():
            return place
    raise NoClone(
        f"{package} are in the repository, not in the installed package: clone it, run scripts/setup there, "
        "and give this command in its folder"
    )


def _module(root: Path, name: str) -> Any:  # noqa: ANN401 - a module
    """Import a module of the clone, by its full name."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
        # So that child processes find it too.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return import_module(name)
