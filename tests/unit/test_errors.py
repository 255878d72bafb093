"""The tree in `errors.py` is the tree as it is. `python -m tests.unit.test_errors` draws it anew."""

import importlib
import pkgutil
import re
import textwrap
from pathlib import Path

import maskedlark
from maskedlark import errors
from maskedlark.errors import MaskedLarkError

SKIPPED = {"maskedlark.__main__"}
PAGE = Path(errors.__file__)


def drawn() -> str:
    """A line for every error that has kinds, those that come first in the alphabet first."""
    for module in pkgutil.walk_packages(maskedlark.__path__, "maskedlark."):
        if module.name not in SKIPPED:
            importlib.import_module(module.name)
    return "\n".join(_lines(MaskedLarkError))


def _lines(cls: type[MaskedLarkError]) -> list[str]:
    ours = [each for each in cls.__subclasses__() if each.__module__.startswith("maskedlark.")]
    kinds = sorted({each.__name__: each for each in ours if not each.__name__.startswith("_")}.items())
    if not kinds:
        return []
    line = f"{cls.__name__}: {', '.join(name for name, _ in kinds)}"
    wrapped = textwrap.wrap(line, 106, initial_indent="    ", subsequent_indent=" " * 8)
    return [*wrapped, *(line for _, each in kinds for line in _lines(each))]


def test_the_tree_is_as_it_is():
    assert drawn() in (errors.__doc__ or ""), "run `python -m tests.unit.test_errors`"


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(
        re.sub(r"(?<=\n)    MaskedLarkError: .*?(?=\n\n)", lambda _: drawn(), text, count=1, flags=re.DOTALL)
    )
