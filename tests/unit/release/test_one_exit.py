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
    """Every function that a module calls or hands on: by its full name where an import tells it.

    Else by `.attribute`, if it is called.
    """
    tree = ast.parse(path.read_text())
    package = ".".join(("maskedlark", *path.relative_to(SOURCE).with_suffix("").parts))
    names = {each.name: f"{package}.{each.name}" for each in tree.body if hasattr(each, "name")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree):
        for each in _functions_of(node):
            match each:
                case ast.Name(name) if name in names:
                    yield names[name]
                case ast.Attribute(ast.Name(name), attribute) if name in names:
                    yield f"{names[name]}.{attribute}"
                case ast.Attribute(_, attribute) if isinstance(node, ast.Call) and each is node.func:
                    yield f".{attribute}"


def _functions_of(node: ast.AST) -> list[ast.expr]:
    """What may be a function: what is called, what is handed to a call, and what gets another name."""
    match node:
        case ast.Call(called, given, named):
            return [called, *given, *(each.value for each in named)]
        case ast.Assign(_, value):
            return [value]
        case _:
            return []


@cache
def all_uses() -> dict[str, set[str]]:
    return {str(path.relative_to(SOURCE)): set(uses(path)) for path in SOURCE.rglob("*.py")}


@pytest.mark.parametrize("used", ALLOWED)
def test_only_the_pipeline_uses(used):
    assert {path for path, names in all_uses().items() if used in names} == ALLOWED[used]


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("mechanisms.draw(kind)", "maskedlark.dp.mechanisms.draw"),
        ("pool.submit(mechanisms.draw, kind)", "maskedlark.dp.mechanisms.draw"),
        ("f = mechanisms.draw", "maskedlark.dp.mechanisms.draw"),
        ("maskedlark.dp.mechanisms.draw(kind)", ".draw"),
        ("law(kind).draw(bits)", ".draw"),
        ("ledger.charge(document)", ".charge"),
    ],
)
def test_a_second_way_out_would_be_seen(tmp_path, monkeypatch, line, used):
    monkeypatch.setattr("tests.unit.release.test_one_exit.SOURCE", tmp_path)
    (tmp_path / "other.py").write_text(f"from maskedlark.dp import mechanisms\n{line}\n")
    assert used in set(uses(tmp_path / "other.py"))
