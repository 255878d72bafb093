"""What made a figure: its command and the machine, kept beside it for the page; and the commit of a row."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from experiments.size import Size

_HERE = Path(__file__).resolve().parent.parent
_LIBRARIES = ("numpy", "torch", "dp-accounting")


class Made(NamedTuple):
    """As the page says it."""

    command: str
    machine: str
    plots: Sequence[str]
    missing: Sequence[str]
    """Data and libraries that were not there."""


def command(name: str, size: Size) -> str:
    """What a reader types to make it again."""
    return f"maskedlark experiment {name}" + ("" if size is Size.DEFAULT else f" --{size}")


def write(out: Path, name: str, size: Size, plots: Sequence[str], missing: Sequence[str]) -> None:
    """After a figure was drawn."""
    found = Made(command(name, size), machine(), plots, missing)
    told = json.dumps(found._asdict(), indent=1, ensure_ascii=False) + "\n"
    (out / f"{name}.json").write_text(told, encoding="utf-8")


def read(out: Path, name: str) -> Made | None:
    """None, where it was never drawn."""
    path = out / f"{name}.json"
    if not path.is_file():
        return None
    found: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return Made(*(found[each] for each in Made._fields))  # type: ignore[arg-type] # what `write` wrote


def commit() -> str:
    """The repository's, and whether the tree differs from it."""
    try:
        found = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "experiments", "benches")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{found} with changes" if changed else found


def machine() -> str:
    """Its processor, cores and libraries; nothing that names it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return f"{cores} cores of {_processor()}, Python {platform.python_version()}, {libraries}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _git(*words: str) -> str:
    asked = ["git", "-C", str(_HERE), *words]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
