"""The encoder on a real table: 12,330 sessions of a shop."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from maskedlark.features import Encoder, OneHot

PATH = Path(__file__).parents[4] / "shared/data/online_shoppers/online_shoppers_intention.csv.gz"
CODES = ("OperatingSystems", "Browser", "Region", "TrafficType")

pytestmark = pytest.mark.skipif(not PATH.exists(), reason=f"the table is not there: {PATH}")


@pytest.fixture(scope="module")
def rows():
    with gzip.open(PATH, "rt", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def encoder(rows):
    return Encoder.fit(rows, {name: OneHot() for name in CODES}, leave_out=["Revenue"])


def test_it_is_encoded_without_its_label(rows, encoder):
    encoded = encoder.encode(rows)
    assert encoded.shape == (12_330, len(encoder))
    assert not any("Revenue" in name for name in encoder.names)
    flipped = [{**row, "Revenue": "TRUE" if row["Revenue"] == "FALSE" else "FALSE"} for row in rows]
    assert Encoder.fit(flipped, {name: OneHot() for name in CODES}, leave_out="Revenue") == encoder
    assert (
        encoder.encode([{k: v for k, v in row.items() if k != "Revenue"} for row in rows]) == encoded
    ).all()


def test_its_kinds_are_those_that_a_person_would_choose(encoder):
    kinds = {fitted.name: fitted.kind for fitted in encoder.columns}
    assert {name for name, kind in kinds.items() if kind == "one-hot"} == {*CODES, "Month", "VisitorType"}
    assert {name for name, kind in kinds.items() if kind == "boolean"} == {"Weekend"}
    assert {name for name, kind in kinds.items() if kind == "hashed"} == set()


def test_no_public_category_is_rare(rows, encoder):
    for fitted in encoder.columns:
        for category in getattr(fitted, "categories", ()):
            assert sum(row[fitted.name] == category for row in rows) >= 20


def test_no_byte_of_it_says_nothing(rows, encoder):
    """Every feature takes at least two values, but "other" where all categories are known."""
    encoded = encoder.encode(rows)
    constant = [name for name, column in zip(encoder.names, encoded.T, strict=True) if len(set(column)) == 1]
    assert all(name.endswith("is other") for name in constant)


def test_serving_gives_what_training_had(rows, encoder, tmp_path):
    encoder.save(tmp_path / "encoder.json")
    serving = Encoder.load(tmp_path / "encoder.json")
    encoded = encoder.encode(rows)
    for number in range(0, len(rows), 411):
        row = rows[number]
        typed = {
            k: v if k in ("Month", "VisitorType", "Weekend", "Revenue") else float(v) for k, v in row.items()
        }
        for one in (row, typed):
            assert (serving.encode([one])[0] == encoded[number]).all()
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    assert (serving.encode(columns) == encoded).all()


def test_its_bytes_carry_the_label(rows, encoder):
    """A plain classifier on the bytes: the encoder did not throw away what training needs."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    x, y = encoder.encode(rows) / 255, np.array([row["Revenue"] == "TRUE" for row in rows])
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:9000], order[9000:]
    score = LogisticRegression(max_iter=500).fit(x[train], y[train]).decision_function(x[test])
    assert roc_auc_score(y[test], score) > 0.85
