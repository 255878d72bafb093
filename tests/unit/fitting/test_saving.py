import json

import numpy as np
import pytest

from maskedlark.fitting import LinearRegression, LogisticRegression, load
from maskedlark.training.errors import NotAModel
from tests.unit.fitting import cases


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    way, features, _ = cases.filled(count=500)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=0.5, map="buckets").fit(features)
    path = tmp_path_factory.mktemp("saved") / "model.json"
    model.save(path)
    return model, path


def test_a_loaded_model_predicts_the_same_without_a_client(saved):
    model, path = saved
    loaded, rows = load(path), cases.rows(200, seed=5)
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(loaded.decision_function(rows), model.decision_function(rows))
    np.testing.assert_array_equal(loaded.coefficients, model.coef_)
    np.testing.assert_array_equal(loaded.intervals()[:, :-1], model.intervals_)
    assert list(loaded.names) == list(model.feature_names_out_)


def test_a_number_is_saved_too(tmp_path):
    way, features, _ = cases.filled("least squares", count=500)
    with way:
        model = LinearRegression(way, cases.TAG, noise=0.5, map="columns").fit(features)
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(load(tmp_path / "model.json").predict(features), model.predict(features))


@pytest.mark.parametrize(
    "change",
    [
        {"family": "tree"},
        {"version": 2},
        {"extra": 1},
        {"weights": "AAAA"},
        {"theta": [[1.0]]},
        {"errors": [[1.0], [2.0, 3.0]]},
        {"names": ["a"]},
        {"clip": 0.0},
        {"encoder": "{}"},
        {"intercept": []},
        {"label": 1},
        {"label": -1},
        {"model": {}},
    ],
)
def test_a_file_that_is_not_ours_is_refused(saved, tmp_path, change):
    held = json.loads(saved[1].read_text()) | change
    (tmp_path / "other.json").write_text(json.dumps(held))
    with pytest.raises(NotAModel):
        load(tmp_path / "other.json")


def test_cut_off_and_binary_files_are_refused(saved, tmp_path):
    for data in (saved[1].read_bytes()[:-9], b"\xff\xfe", b"[]", b""):
        (tmp_path / "cut.json").write_bytes(data)
        with pytest.raises(NotAModel):
            load(tmp_path / "cut.json")
