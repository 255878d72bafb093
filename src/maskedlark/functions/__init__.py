"""The functions that helpers compute, one file each. A helper's operator may add others by their module."""

from collections.abc import Iterable
from importlib import import_module

from maskedlark.errors import NotDeclared
from maskedlark.functions.sums import Sums
from maskedlark.privacy.function import Function

BUILT_IN: tuple[type[Function], ...] = (Sums,)


def load(modules: Iterable[str] = ()) -> dict[str, Function]:
    """All built-in functions, and those of the modules named, by name. Run by a helper at its start."""
    found = {cls.name: cls() for cls in BUILT_IN}
    for module in modules:
        added = {cls.name: cls() for cls in _functions(module)}
        if taken := sorted(found.keys() & added.keys()):
            raise NotDeclared(f"the function {taken[0]!r} of {module} has a name that is taken")
        found |= added
    return found


def _functions(module: str) -> list[type[Function]]:
    try:
        names = vars(import_module(module))
    except ImportError as error:
        raise NotDeclared(f"no module {module!r} with functions can be imported: {error}") from None
    classes = [each for each in names.values() if isinstance(each, type) and issubclass(each, Function)]
    own = [cls for cls in classes if cls.__module__ == module]
    if not own:
        raise NotDeclared(f"{module} defines no Function")
    return own
