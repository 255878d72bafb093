"""The clone of the repository: benches and experiments are in no wheel, and run from there alone."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import maskedlark
from maskedlark.errors import MaskedLarkError


class NoClone(MaskedLarkError):
    """A command that needs the repository, where there is none."""


def root(package: str) -> Path:
    """Where the repository is that holds this package: around our own files, or the current folder."""
    own = Path(maskedlark.__file__).resolve().parents[2]
    for place in (own, Path.cwd()):
        if (place / package / "__init__.py").exists() and (place / "src" / "maskedlark").exists():
            return place
    raise NoClone(
        f"{package} are in the repository, not in the installed package: clone it, run scripts/setup there, "
        "and give this command in its folder"
    )


def module(name: str) -> Any:  # noqa: ANN401 - a module
    """A module of the clone, by its whole name."""
    place = str(root(name.split(".", 1)[0]))
    if place not in sys.path:
        sys.path.insert(0, place)
        # Processes that it starts find it too.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))
    return import_module(name)
