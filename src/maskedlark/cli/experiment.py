"""`maskedlark experiment`: the paper's figures and ours, drawn again."""

import json
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.cli import clone, interrupted
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json
from maskedlark.core.suggestions import did_you_mean

EXAMPLE = "Example: maskedlark experiment all --quick"
app = typer.Typer(add_completion=False)


@app.command("experiment", epilog=EXAMPLE)
@plainly
def experiment(
    names: Annotated[list[str], typer.Argument(help="Figures by name, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A look: under five minutes for all.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The authors' whole grid: hours.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="For plots, numbers and the page; else docs/results.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the paper, or one of ours. Needs a clone of the repository."""
    if quick and full:
        raise typer.BadParameter("give --quick or --full, not both")
    place, size = clone.root("experiments"), "quick" if quick else "full" if full else "default"
    known = [*clone.module("experiments.figures").NAMES, "all"]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no experiment {name!r}; {did_you_mean(name, known)}")
    # The page is the default size's: a look does not replace it.
    folder = out or (place / "docs/results" if size == "default" else place / f"build/results-{size}")
    sized = clone.module("experiments.size").Size(size)
    main = clone.module("experiments.running").main
    with interrupted.in_order():
        code = main(names, sized, folder, lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(json.dumps({"experiments": names, "size": size, "out": str(folder), "drawn": code == 0}))
    if code:
        raise typer.Exit(code)
