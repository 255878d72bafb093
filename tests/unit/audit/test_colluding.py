"""What a helper tells whom it colludes with is made by the names that helpers use, none of them private."""

import ast
import hashlib
from pathlib import Path

import pytest

from maskedlark import audit
from maskedlark.dp import mechanisms
from maskedlark.ledger import sessions
from maskedlark.release import release, session

SEED, BODY = bytes(range(32)), b"weights"


@pytest.mark.parametrize("path", sorted(Path(audit.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_auditors_reach_into_nothing_private(path):
    tree = ast.parse(path.read_text())
    reached = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    imported = [
        each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names
    ]
    assert [name for name in reached + imported if name.startswith("_") and not name.startswith("__")] == []


def test_seeds_are_as_the_protocol_says():
    digest = hashlib.sha256(bytes(8) + BODY).digest()
    assert session.body_digest(BODY, ()) == digest
    step = hashlib.sha256(b"maskedlark v2 step noise" + SEED + (3).to_bytes(8, "big") + digest).digest()
    assert sessions.noise_seed(SEED, 3, digest) == step
    column = hashlib.sha256(b"maskedlark v2 noise" + SEED + bytes([0, 0, 0, 1, 0, 0, 0, 2])).digest()
    assert release.column_seed(SEED, 1, 2) == column
    root = hashlib.sha256(b"maskedlark v2 noise root" + SEED + b"one" + b"two").digest()
    assert mechanisms.root(SEED, [b"one", b"two"]) == root
