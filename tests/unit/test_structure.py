"""What tests share is in `conftest.py` or in a module of its own: no test module is imported by another."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
IMPORTED = re.compile(
    r"^\s*(?:from|import) (tests(?:\.\w+)*\.test_\w+|tests[\w.]* import test_\w+)", re.MULTILINE
)


def imports_of(path: Path) -> set[str]:
    """The test modules that a file imports. A program that it starts may import the file itself."""
    own = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
    return set(IMPORTED.findall(path.read_text())) - {own}


def test_no_test_module_is_imported():
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 100
    assert {str(path): names for path in files if (names := imports_of(path))} == {}


def test_an_import_is_noticed():
    for line in ("from tests.unit.test_workflow import x", "    import tests.unit.test_workflow"):
        assert IMPORTED.findall(line) == ["tests.unit.test_workflow"]
    assert IMPORTED.findall("from tests.unit import test_workflow") == ["tests.unit import test_workflow"]
    assert IMPORTED.findall("from tests.unit.cases import make") == []
