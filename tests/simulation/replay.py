"""Run the schedule of a seed again, step by step: `python -m tests.simulation.replay SEED [--shrink]`.

Add up what a run did: `python -m tests.simulation.replay --totals FOLDER` (its SIMULATION_TOTALS).
"""

import argparse
import sys
import traceback
from pathlib import Path

from tests.simulation.schedule import draw, run
from tests.simulation.shrinking import failure, shown, shrink
from tests.simulation.totals import Totals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replay", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="of the schedule, as a failing run printed it")
    parser.add_argument("--shrink", action="store_true", help="leave out what the failure does not need")
    parser.add_argument("--totals", type=Path, help="a folder in which runs wrote what they did")
    options = parser.parse_args()
    if options.totals is not None:
        print(Totals.read(options.totals).line())
        return 0
    drawn = draw(options.seed)
    try:
        print(run(drawn).line())
    except Exception:  # noqa: BLE001 - whatever it is, it is to be seen
        traceback.print_exc()
        if options.shrink:
            short = shrink(drawn)
            print(shown(short), failure(short), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
