"""An engine in which something ends while a chosen request is computed: a worker, the helper, or a node."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from maskedlark.compute.engine import Engine, Progress, no_progress
from maskedlark.compute.settings import open_engine
from maskedlark.helper import service


@dataclass(frozen=True)
class Fault:
    """What ends, once. Pickled for workers, which end it after their work and before they say so."""

    kind: str
    """`worker`, `helper`, or `outside`: then the work waits until the test has ended something."""
    mark: Path
    helper: int

    def strike(self) -> None:
        is_helper = os.getpid() == self.helper
        if self.kind != "helper" and is_helper:
            return  # A single item may be computed by the helper itself.
        try:
            self._leave_mark()
        except FileExistsError:
            return
        if self.kind == "outside":
            while not self.mark.with_suffix(".go").exists():
                time.sleep(0.02)
            return
        os.kill(os.getpid() if self.kind == "worker" else self.helper, signal.SIGKILL)
        time.sleep(600)  # Nothing goes on before the signal arrives.

    def _leave_mark(self) -> None:
        """At once with what is in it: the Ray node that this worker is on."""
        ray = sys.modules.get("ray")
        written = self.mark.with_suffix(f".{os.getpid()}")
        written.write_text(ray.get_runtime_context().get_node_id() if ray else "")
        try:
            os.link(written, self.mark)
        finally:
            written.unlink()


class FaultyEngine(Engine):
    """Another engine, with faults: by request, what ends while it is computed."""

    doing: ClassVar[str] = ""
    """The request that is asked now."""

    def __init__(self, engine: Engine, folder: Path, faults: dict[str, str]) -> None:
        self._engine, self._folder, self._faults = engine, folder, faults
        self.workers, self.is_elsewhere = engine.workers, engine.is_elsewhere

    @staticmethod
    def install(folder: Path, faults: dict[str, str]) -> None:
        """Helpers that start in this process use it from now on."""
        FaultyEngine.doing = ""  # Nothing is asked before a helper runs.
        vars(service)["open_engine"] = lambda *settings: FaultyEngine(open_engine(*settings), folder, faults)

    def _fault(self) -> Fault | None:
        kind = self._faults.get(self.doing)
        return None if kind is None else Fault(kind, self._folder / f"fault-{self.doing}", os.getpid())

    def map(
        self,
        function: Callable[[Any, Any], Any],
        common: Any,
        items: Sequence[Any],
        progress: Progress = no_progress,
    ) -> list[Any]:
        return self._engine.map(partial(over, function, self._fault()), common, items, progress)

    def run(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self._engine.run(partial(alone, function, self._fault()), item)

    def close(self) -> None:
        self._engine.close()


def over(function: Callable[[Any, Any], Any], fault: Fault | None, common: Any, item: Any) -> Any:
    result = function(common, item)
    if fault is not None:
        fault.strike()
    return result


def alone(function: Callable[[Any], Any], fault: Fault | None, item: Any) -> Any:
    result = function(item)
    if fault is not None:
        fault.strike()
    return result
