"""The parameter documents that reports of the vectors are made under. All their settings are here."""

from typing import Any

from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters import cases

Columns = list[dict[str, Any]]
PRICE = {"kind": "reals", "value": "purchase", "low": 0, "high": 100, "buckets": 10}
PROFIT = {"kind": "integers", "value": "profit", "low": -300, "high": 300}
FEW = {"kind": "integers", "value": "profit", "low": -3, "high": 3}
VALUES = [{"name": "purchase", "low": 0, "high": 50_000}, {"name": "profit", "low": -300, "high": 300}]


def helper_names(helpers: int) -> list[str]:
    """All vectors with as many helpers have these."""
    return [f"helper-{place}.example" for place in range(helpers)]


def identity(name: str) -> SigningKey:
    """A helper's."""
    return SigningKey(FixedRandomness(f"identity of {name}".encode()).bytes(32))


def _model(tag: str, columns: Columns, labels: Columns, **more: object) -> dict[str, Any]:
    return {"tag": tag, "columns": columns, "labels": labels, "gradient_bound": 1.0, **more}


def _bytes(count: int) -> Columns:
    return [{"kind": "bytes", "count": count}]


def _models() -> list[dict[str, Any]]:
    bags = [{"kind": "bag", "size": 9, "length": 4}, {"kind": "bag", "size": 1000, "length": 2}]
    mixed = [{"kind": "category", "size": 7}, *_bytes(2), *bags]
    return [
        _model("clicks", _bytes(6), [{"kind": "binary"}]),
        _model("basket", _bytes(2), [PRICE, {"kind": "binary"}], candidates="sample", sample=2),
        _model("profit", _bytes(1), [PROFIT], candidates="pair"),
        _model("several", _bytes(3), [FEW, PRICE, {"kind": "binary"}]),
        _model("mixed", mixed, [PROFIT], candidates="sample", sample=3),
        _model("category", mixed[:1], [{"kind": "binary"}]),
    ]


def _noisy() -> dict[str, Any]:
    """A model whose bytes and labels get noise in the browser."""
    local: dict[str, Any] = {
        "feature_noise": {"epsilon": 2.0, "sensitivity": 16.0},
        "randomised_response": {"epsilon": 0.5},
    }
    columns = [{"kind": "category", "size": 7}, *_bytes(4)]
    return _model("noisy", columns, [PRICE, {"kind": "binary"}], candidates="sample", sample=2, **local)


def _make(helpers: int, **changes: object) -> Document:
    named = [
        {"name": name, "identity": identity(name).verifying.public.hex()} for name in helper_names(helpers)
    ]
    given = {"helpers": named, "values": VALUES, "models": _models(), "decoys": [], "fake_rate": 0.0}
    return cases.make(**{**given, **changes})


def labelled() -> Document:
    """Labels of every kind, from values whose bounds do not hold 0."""
    values = [{"name": "purchase", "low": 5, "high": 50}, {"name": "profit", "low": -300, "high": -1}]
    few: dict[str, Any] = {"kind": "categorical", "value": "purchase", "classes": 4}
    labels = [{"kind": "binary"}, {"kind": "binary", "value": "purchase"}, few, FEW, PROFIT, PRICE]
    return _make(2, values=values, models=[_model("labelled", _bytes(1), labels)])


def documents() -> dict[str, Document]:
    """By the name that vectors call them."""
    return {
        "two helpers": _make(2),
        "three helpers": _make(3),
        "five helpers": _make(5),
        "one model": _make(2, models=_models()[:1]),
        "local noise": _make(2, models=[_noisy()]),
        "no keys": _make(2, keys=[], models=[], training=None),
        "two helpers, checked": _make(2, checks="bits"),
        "three helpers, checked": _make(3, checks="bits", models=_models()[:2]),
    }
