"""`python -m benches NAME [--json]`: run one benchmark."""

import argparse
import importlib
import json
import pkgutil
import sys

import benches

SHARED = {"__main__", "timing"}


def main() -> None:
    """Measure, then print: a table to read, or one JSON object and nothing else."""
    names = sorted({module.name for module in pkgutil.iter_modules(benches.__path__)} - SHARED)
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Run one benchmark.", epilog="example: scripts/bench core --json"
    )
    parser.add_argument("name", choices=names)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, nothing else, on standard output"
    )
    arguments = parser.parse_args()
    module = importlib.import_module(f"benches.{arguments.name}")
    figures = module.measure(lambda stage: print(f"{arguments.name}: {stage} …", file=sys.stderr, flush=True))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{name:24} {json.dumps(figure)}")


main()
