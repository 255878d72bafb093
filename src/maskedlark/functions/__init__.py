"""The functions that helpers compute, one file each. A helper's operator may add others by their module."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

from maskedlark.errors import NotDeclared
from maskedlark.functions.function import Function, SteppedFunction
from maskedlark.functions.sums import Sums

BUILT_IN: tuple[type[Function], ...] = (Sums,)
EVALUATION = {"evaluation": ("maskedlark.functions.evaluation", "Evaluation")}
GRADIENT = {"gradient": ("maskedlark.functions.gradient", "Gradient")}
F = TypeVar("F", Function, SteppedFunction)
_log = logging.getLogger(__name__)


def load(modules: Iterable[str] = ()) -> dict[str, Function]:
    """All built-in functions, and those of the modules named, by name. Run by a helper at its start."""
    added = [cls for module in modules for cls in _classes(module) if issubclass(cls, Function)]
    return _by_name([cls() for cls in (*BUILT_IN, *added)])


def load_stepped(modules: Iterable[str] = ()) -> dict[str, SteppedFunction]:
    """The functions of the modules named that sessions ask step by step."""
    added = [cls for module in modules for cls in _classes(module) if issubclass(cls, SteppedFunction)]
    return _by_name([cls() for cls in added])


class OnDemand(Mapping[str, F]):
    """Functions by name, of which those to train are imported when they are first asked for.

    They need torch, which takes seconds to start, and which a helper that only measures does without.
    """

    def __init__(self, known: Mapping[str, F], later: Mapping[str, tuple[str, str]]) -> None:
        if taken := sorted(set(known) & set(later)):
            raise NotDeclared(f"the function {taken[0]!r} has a name that is taken: give it another")
        self._known: dict[str, F] = dict(known)
        self._later = later if find_spec("torch") else {}
        if not self._later:
            _log.warning("not served here, because torch is not installed: %s", ", ".join(later))

    def __getitem__(self, name: str) -> F:
        if name not in self._known and name in self._later:
            module, cls = self._later[name]
            self._known[name] = getattr(import_module(module), cls)()
        function: F = self._known[name]
        return function

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._known), **dict.fromkeys(self._later)})

    def __len__(self) -> int:
        return len(set(self._known) | set(self._later))


def _by_name(functions: Sequence[F]) -> dict[str, F]:
    by_name: dict[str, F] = {}
    for function in functions:
        if function.name in by_name:
            module = type(function).__module__
            raise NotDeclared(f"the function {function.name!r} of {module} has a name that is taken")
        by_name[function.name] = function
    return by_name


def _classes(module: str) -> list[type[Function | SteppedFunction]]:
    try:
        names: Mapping[str, object] = vars(import_module(module))
    except ImportError as error:
        raise NotDeclared(f"no module {module!r} with functions can be imported: {error}") from None
    classes = [each for each in names.values() if isinstance(each, type)]
    own = [cls for cls in classes if issubclass(cls, Function | SteppedFunction) and cls.__module__ == module]
    if not own:
        raise NotDeclared(f"{module} defines no Function")
    return own
