"""`python -m experiments NAME|all [--quick|--full] [--fresh] [--out FOLDER]`: make figures and their page."""

import argparse
import sys
from pathlib import Path

from experiments import figures
from experiments.running import main
from experiments.size import Size


def _out(size: Size) -> Path:
    """The page is the default size's: a look at it does not replace it."""
    return Path("docs/results") if size is Size.DEFAULT else Path(f"build/results-{size}")


def _run() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description="Make the paper's figures and ours."
    )
    parser.add_argument("name", nargs="+", help=f"all, or some of {', '.join(figures.NAMES)}")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--quick", action="store_const", dest="size", const=Size.QUICK, help="under five minutes"
    )
    sizes.add_argument(
        "--full", action="store_const", dest="size", const=Size.FULL, help="the authors' whole grid"
    )
    parser.add_argument("--fresh", action="store_true", help="compute every run again")
    parser.add_argument("--out", type=Path, help="the folder of plots, CSV files and page")
    given = parser.parse_args()
    size = given.size or Size.DEFAULT
    out = given.out or _out(size)
    return main(given.name, size, out, lambda line: print(line, file=sys.stderr, flush=True), given.fresh)


if __name__ == "__main__":  # A worker process imports this module too.
    sys.exit(_run())
