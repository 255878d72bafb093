"""A helper's first start, killed right before or after a call: `FOLDER CALL BEFORE`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from maskedlark.clock import FixedClock
from maskedlark.helper import service
from tests.unit.helper.world import NOW, running, settings


def main(folder: Path, call: str, before: bool) -> None:
    """Start it, and end."""
    called = getattr(service, call)

    def killed(*given: Any, **named: Any) -> Any:
        if not before:
            called(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(service, call, killed)
    with running(folder, settings(folder), FixedClock(NOW)):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "1")
