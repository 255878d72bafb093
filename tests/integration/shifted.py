"""`maskedlark` with a clock that is ahead, by the seconds in the file that the first argument names."""

import sys
import time
from pathlib import Path

from maskedlark.cli import app
from maskedlark.clock import SystemClock

if __name__ == "__main__":
    by = Path(sys.argv.pop(1))
    SystemClock.now = lambda self: int(time.time()) + int(by.read_text())  # type: ignore[method-assign]
    app()
