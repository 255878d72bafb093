import json
from copy import deepcopy
from typing import Any

import pytest

from maskedlark.core.declared import Bag, Bytes, Category
from maskedlark.core.labels import LabelSpace
from maskedlark.errors import InvalidDocument
from maskedlark.parameters import document
from maskedlark.parameters.document import NoMechanism
from tests.unit.parameters.cases import DOCUMENT_KEY, make, settings


def models(**changes: Any) -> dict[str, Any]:
    return {"models": [{**settings()["models"][0], **changes}], "decoys": [], "fake_rate": 0.0}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "epsilon of zero": ({"budget": {"epsilon": 0.0, "delta": 0.0}}, "greater than 0"),
    "negative epsilon": ({"budget": {"epsilon": -1.0, "delta": 0.0}}, "greater than 0"),
    "infinite epsilon": ({"budget": {"epsilon": float("inf"), "delta": 0.0}}, "finite"),
    "delta of one": ({"budget": {"epsilon": 8.0, "delta": 1.0}}, "less than 1"),
    "k of zero": ({"k": 0}, "greater than or equal to 1"),
    "k as text": ({"k": "50"}, "valid integer"),
    "one helper": ({"helpers": settings()["helpers"][:1]}, "at least 2"),
    "a helper twice": ({"helpers": settings()["helpers"][:1] * 2}, "twice"),
    "nothing declared": (
        {"values": [], "models": [], "decoys": [], "training": None, "fake_rate": 0.0},
        "nothing",
    ),
    "no mechanism": ({"mechanisms": {}}, "add mechanisms.sums"),
    "no noise for models": (
        {"mechanisms": {"sums": {"kind": "laplace", "noise_floor": 1.0}}},
        "add mechanisms.moments to fit linear models, mechanisms.gradient to train, mechanisms.cells",
    ),
    "no noise for sums": (
        {"mechanisms": {"gradient": {"kind": "laplace", "noise_floor": 1.0}}},
        "add mechanisms.sums",
    ),
    "Gaussian sums when training has the delta": (
        {"mechanisms": settings()["mechanisms"] | {"sums": {"kind": "gaussian", "noise_floor": 1.0}}},
        "Gaussian noise of sums needs a delta over 0: to aggregate",
    ),
    "a function in capitals": ({"mechanisms": {"Sums": {"kind": "laplace", "noise_floor": 1.0}}}, "match"),
    "a function of too long a name": (
        {"mechanisms": {"s" * 33: {"kind": "laplace", "noise_floor": 1.0}}},
        "match pattern",
    ),
    "no ceilings": ({"training": None}, "without ceilings"),
    "a value upside down": ({"values": [{"name": "visit", "low": 2, "high": 1}]}, "swap them"),
    "sums beyond the field": (
        {"max_records": 1 << 31, "values": [{"name": "purchase", "low": 0, "high": 1 << 40}]},
        "leave the field",
    ),
    "decoys of other keys": ({"decoys": [{"keys": {"other": 1}}]}, "the document declares"),
    "fakes of nothing": ({"decoys": []}, "no decoys with keys"),
    "a first version that follows": ({"previous": "00" * 32}, "version 1 has no previous"),
    "a second version that follows none": ({"version": 2}, "version 1 has no previous"),
    "an unknown setting": ({"colour": "blue"}, "Extra inputs"),
    "an origin in capitals": ({"origin": "ADS.example"}, "match pattern"),
    "a line behind the origin": ({"origin": "ads.example\n"}, "match pattern"),
    "an unknown format": ({"format": 4}, "Input should be 3"),
    "the format of one key": (
        {"format": 1},
        "^format: a document of format 1 .* a new chain with a new draft",
    ),
    "the format of purposes": (
        {"format": 2},
        "^format: a document of format 2 .* a new chain with a new draft",
    ),
    "checks that do not exist": ({"checks": "prio"}, "^checks: Input should be 'none' or 'bits'"),
    "too many numbers to check": (
        {
            "checks": "bits",
            **models(labels=[{"kind": "integers", "value": "purchase", "low": 0, "high": 1023}]),
        },
        "checks cover at most 1024 numbers per record, not 1025: show fewer candidates",
    ),
    "a decoy of another size": (
        {"decoys": [{"tag": "clicks", "columns": "00ff80"}]},
        "a decoy of clicks has columns of another size than the model",
    ),
    "a column of no kind": (models(columns=[{"count": 4}]), "models.0.columns.0: Unable to extract tag"),
    "a column of an unknown kind": (models(columns=[{"kind": "text"}]), "'bytes', 'category', 'bag'"),
    "a column of more": (models(columns=[{"kind": "bytes", "count": 4, "size": 2}]), "Unexpected"),
    "a count as text": (models(columns=[{"kind": "bytes", "count": "4"}]), "valid integer"),
    "a category of none": (models(columns=[{"kind": "category", "size": 0}]), "from 1 to 4294967295, not 0"),
    "a bag too long": (models(columns=[{"kind": "bag", "size": 2, "length": 1025}]), "from 1 to 1024"),
    "bytes twice": (models(columns=[{"kind": "bytes", "count": 4}] * 2), "two columns of bytes"),
    "no columns": (models(columns=[]), "at least 1"),
    "too many columns": (models(columns=[{"kind": "category", "size": 2}] * 65), "at most 64"),
    "columns too wide": (
        models(columns=[{"kind": "bytes", "count": 65_536}, {"kind": "category", "size": 2}]),
        "65536 bytes together",
    ),
    "feature noise without byte features": (
        models(columns=[{"kind": "category", "size": 2}], feature_noise={"epsilon": 1.0, "sensitivity": 1.0}),
        "clicks has no byte features: remove feature_noise",
    ),
    "features as a number": (models(features=4), "Extra inputs"),
    "one key for both": (
        {"request_key": DOCUMENT_KEY.verifying.public.hex()},
        "document_key and request_key are the same key: make another",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_senseless_settings_are_refused_with_what_to_change(case):
    changes, words = REFUSED[case]
    with pytest.raises(InvalidDocument, match=words):
        make(**changes)


def test_a_document_comes_back_from_its_canonical_form_alone():
    made = make()
    assert document.decode(made.encode()) == made
    for other in (
        json.dumps(json.loads(made.encode())).encode(),
        made.encode() + b"\n",
        b" " + made.encode(),
        made.encode().replace(b'"k":50', b'"k":50,"k":50'),
    ):
        with pytest.raises(InvalidDocument):
            document.decode(other)


def test_every_setting_has_to_be_present_in_the_published_form():
    full = json.loads(make().encode())
    for name in full:
        lacking = deepcopy(full)
        del lacking[name]
        with pytest.raises(InvalidDocument):
            document.decode(json.dumps(lacking, separators=(",", ":"), sort_keys=True).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b"[" * 10_000, b'{"k":' + b"9" * 5000 + b"}"])
def test_what_is_no_document_is_refused(data):
    with pytest.raises(InvalidDocument):
        document.decode(data)


def test_the_digest_names_the_bytes():
    assert make().digest == make().digest
    assert make(k=51).digest != make().digest


def test_a_flood_of_faults_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr(document.Document, "model_validate_json", lambda *_: pytest.fail("it was parsed"))
    with pytest.raises(InvalidDocument, match="commas"):
        document.parse(b'{"keys":[' + b"0," * 100_000 + b"0]}")


def test_noise_is_declared_by_function_also_for_those_of_an_operator():
    own = {"kind": "laplace", "noise_floor": 3.0}
    made = make(mechanisms=settings()["mechanisms"] | {"our_cells": own})
    assert made.mechanism("our_cells").noise_floor == 3.0
    assert [made.mechanism(each).kind for each in ("sums", "gradient")] == ["laplace", "gaussian"]
    with pytest.raises(NoMechanism, match="no noise for other; it does for cells, gradient, our_cells, sums"):
        made.mechanism("other")


def test_columns_of_every_kind_come_back_and_decoys_are_as_wide():
    bag = {"kind": "bag", "size": 9, "length": 2}
    columns = [{"kind": "category", "size": (1 << 32) - 1}, {"kind": "bytes", "count": 3}, bag]
    changes = models(columns=columns) | {"decoys": [{"tag": "clicks", "columns": "00" * 15}]}
    made = make(**changes)
    assert document.decode(made.encode()) == made
    assert made.declared_models["clicks"].columns == (Category((1 << 32) - 1), Bytes(3), Bag(9, 2))
    assert (made.trained("clicks").width, made.trained("clicks").features) == (15, 3)


def test_the_labels_of_all_models_are_bounded_before_any_space_is_made(monkeypatch):
    """A document of 200 KB would otherwise take gigabytes at everybody who reads it."""
    monkeypatch.setattr(LabelSpace, "__post_init__", lambda _: pytest.fail("a space was made"))
    label = {"kind": "categorical", "value": "purchase", "classes": 65_536}
    model = {"tag": "wide", "columns": [{"kind": "bytes", "count": 1}], "labels": [label] * 5}
    given = settings(models=[model | {"gradient_bound": 1.0, "candidates": "pair"}])
    with pytest.raises(InvalidDocument, match="more than 262144 labels together"):
        document.parse(json.dumps(given))
