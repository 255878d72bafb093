"""The functions that helpers compute, one file each. Run by helpers; operators may add modules."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec

from maskedlark.errors import NotDeclared
from maskedlark.functions.function import AnyFunction, Function, SteppedFunction
from maskedlark.functions.sums import Sums
from maskedlark.parameters.document import FUNCTION_NAME


def _cells() -> AnyFunction:
    from maskedlark.functions.cells import Cells  # noqa: PLC0415 - loads torch

    return Cells()


def _gradient() -> AnyFunction:
    from maskedlark.functions.gradient import Gradient  # noqa: PLC0415 - loads torch

    return Gradient()


def _moments() -> AnyFunction:
    from maskedlark.functions.moments import Moments  # noqa: PLC0415 - loads torch

    return Moments()


ON_DEMAND: Mapping[str, Callable[[], AnyFunction]] = {
    "cells": _cells,
    "gradient": _gradient,
    "moments": _moments,
}
"""They need torch, which takes seconds to load and which helpers that only measure do not need."""
_log = logging.getLogger(__name__)


class Functions(Mapping[str, AnyFunction]):
    """Functions by name: built-in ones, imported on first use if for training, and those of these modules."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._loaded: dict[str, AnyFunction] = {Sums.name: Sums()}
        for module in modules:
            for function in _defined(module):
                if not re.fullmatch(FUNCTION_NAME, function.name):
                    raise NotDeclared(
                        f"the function {function.name!r} of {module} cannot be named in a document: use a-z, "
                        "0-9 and _, at most 32 characters, a letter first"
                    )
                if function.name in {*self._loaded, *ON_DEMAND}:
                    raise NotDeclared(f"the function {function.name!r} of {module} has a name that is taken")
                self._loaded[function.name] = function
        self._later = ON_DEMAND if find_spec("torch") else {}
        if not self._later:
            _log.warning("not served here, because torch is not installed: %s", ", ".join(ON_DEMAND))

    def __getitem__(self, name: str) -> AnyFunction:
        if name not in self._loaded and name in self._later:
            self._loaded[name] = self._later[name]()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **self._later})

    def __len__(self) -> int:
        return len({*self._loaded, *self._later})


def _defined(module: str) -> list[AnyFunction]:
    try:
        names: Mapping[str, object] = vars(import_module(module))
    except ImportError as error:
        raise NotDeclared(f"no module {module!r} with functions can be imported: {error}") from None
    classes = [each for each in names.values() if isinstance(each, type) and each.__module__ == module]
    own: list[AnyFunction] = [cls() for cls in classes if issubclass(cls, Function | SteppedFunction)]
    if not own:
        raise NotDeclared(f"{module} defines no Function")
    return own
