"""There is one pipeline: nothing else draws noise, masks an answer, charges a budget or signs a receipt."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import maskedlark

SOURCE = Path(maskedlark.__file__).parent
PIPELINE = "release/release.py"
AUDITOR = "audit/colluding.py"
"""Draws a colluding helper's noise again, from that helper's folder, to show that it is no help."""
ALLOWED = {
    # Noise, and the mask on an answer.
    "maskedlark.dp.mechanisms.draw": {PIPELINE, AUDITOR},
    "maskedlark.dp.mechanisms.root": {PIPELINE, "ledger/sessions.py", AUDITOR},
    "maskedlark.release.zero_sum.masked": {PIPELINE},
    "maskedlark.release.zero_sum.Mask": {"release/zero_sum.py"},
    # The numbers of a check, which need no noise: a point of a random polynomial, the same for good.
    "maskedlark.release.check_messages.sign": {"helper/checking.py"},
    "maskedlark.core.validity.evaluate": {"wire/decrypt.py"},
    "maskedlark.core.validity.challenges": {"wire/decrypt.py"},
    "maskedlark.helper.chunk_file.read_checks": {"helper/checking.py"},
    # The charge and its receipt.
    "maskedlark.ledger.charge.QueryCharge": {PIPELINE},
    "maskedlark.ledger.receipt.sign": {"ledger/ledger.py"},
    "maskedlark.ledger.rows.append": {"ledger/ledger.py", "ledger/rows.py"},
    "maskedlark.ledger.session_rows.reserve": {"ledger/ledger.py"},
    "maskedlark.ledger.session_rows.assign_step": {"ledger/sessions.py"},
    # Of an instance, whatever its name: the laws of noise, and the ledger. Candidates are drawn too.
    ".draw": {"dp/mechanisms.py", "core/declared.py"},
    ".charge": {PIPELINE},
}


def uses(path: Path) -> Iterator[str]:
    """Every function that a module names, to call or to hand on: by its full name where imports tell it.

    Else by `.attribute`, if it is called.
    """
    tree = ast.parse(path.read_text())
    module = ".".join(("maskedlark", *path.relative_to(SOURCE).with_suffix("").parts))
    names = {each.name: f"{module}.{each.name}" for each in tree.body if hasattr(each, "name")}
    names |= {name: full for node in ast.walk(tree) for name, full in _imported(node, module)}
    types = {id(inner) for node in ast.walk(tree) for each in _annotations(node) for inner in ast.walk(each)}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in types:
            root, *attributes = ast.unparse(node).split(".")
            if root in names and all(each.isidentifier() for each in attributes):
                yield ".".join((names[root], *attributes))
            elif isinstance(node, ast.Attribute) and id(node) in called:
                yield f".{node.attr}"


def _imported(node: ast.AST, module: str) -> Iterator[tuple[str, str]]:
    """The names that an import makes, and what they stand for."""
    match node:
        case ast.ImportFrom(source, aliases, level):
            base = [*module.split(".")[:-level], *([source] if source else [])] if level else [source or ""]
            yield from ((each.asname or each.name, ".".join((*base, each.name))) for each in aliases)
        case ast.Import(aliases):
            for each in aliases:
                root = each.name.partition(".")[0]
                yield (each.asname, each.name) if each.asname else (root, root)


def _annotations(node: ast.AST) -> list[ast.expr]:
    """Types name classes and call nothing."""
    found = (getattr(node, field, None) for field in ("annotation", "returns"))
    return [each for each in found if isinstance(each, ast.expr)]


@cache
def all_uses() -> dict[str, set[str]]:
    return {str(path.relative_to(SOURCE)): set(uses(path)) for path in SOURCE.rglob("*.py")}


@pytest.mark.parametrize("used", ALLOWED)
def test_only_the_pipeline_uses(used):
    assert {path for path, names in all_uses().items() if used in names} == ALLOWED[used]


DRAW = "maskedlark.dp.mechanisms.draw"


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("mechanisms.draw(kind)", DRAW),
        ("pool.submit(mechanisms.draw, kind)", DRAW),
        ("f = mechanisms.draw", DRAW),
        ("def f():\n    return mechanisms.draw", DRAW),
        ("laws = {'laplace': mechanisms.draw}", DRAW),
        ("f = lambda: mechanisms.draw", DRAW),
        ("f: object = mechanisms.draw", DRAW),
        ("def f(g=mechanisms.draw): ...", DRAW),
        ("mechanisms.draw.__call__(kind)", DRAW),
        ("import maskedlark.dp.mechanisms as m\nm.draw(kind)", DRAW),
        (
            "import maskedlark.dp.mechanisms\nf = maskedlark.dp.mechanisms.draw",
            "maskedlark.dp.mechanisms.draw",
        ),
        ("from .dp.mechanisms import draw as d\nf = [d]", DRAW),
        ("from maskedlark import dp\nf = dp.mechanisms.draw", DRAW),
        ("maskedlark.dp.mechanisms.draw(kind)", ".draw"),
        ("law(kind).draw(bits)", ".draw"),
        ("ledger.charge(document)", ".charge"),
    ],
)
def test_a_second_way_out_would_be_seen(tmp_path, monkeypatch, line, used):
    monkeypatch.setattr("tests.unit.release.test_one_exit.SOURCE", tmp_path)
    (tmp_path / "other.py").write_text(f"from maskedlark.dp import mechanisms\n{line}\n")
    assert used in set(uses(tmp_path / "other.py"))
