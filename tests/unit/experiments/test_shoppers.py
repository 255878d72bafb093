"""Online shoppers: the split is fixed, and neither labels nor the rows to test with are fitted to."""

import numpy as np
import pytest

from experiments.data import places, shoppers


def columns(rows: int = 400) -> dict[str, list[str]]:
    rng = np.random.default_rng(3)
    bought = rng.random(rows) < 0.2
    return {
        "PageValues": [f"{number:.2f}" for number in rng.random(rows) * 50],
        "Month": [("May", "Nov")[each] for each in rng.integers(0, 2, rows)],
        "Revenue": ["TRUE" if each else "FALSE" for each in bought],
    }


def test_three_quarters_train_and_every_row_is_used_once():
    found = shoppers.split(columns())
    assert (len(found.features), len(found.test_features)) == (300, 100)
    assert found.labels.sum() + found.test_labels.sum() == columns()["Revenue"].count("TRUE")


def test_another_label_changes_no_byte_of_a_feature():
    """A label that is fitted to, or encoded, would."""
    turned = columns() | {"Revenue": ["TRUE"] * 400}
    assert np.array_equal(shoppers.split(columns()).features, shoppers.split(turned).features)


def test_rows_to_test_with_are_not_fitted_to():
    order = np.random.default_rng(shoppers.SPLIT_SEED).permutation(400)
    changed = columns()
    for row in order[300:]:
        changed["PageValues"][row] = "1e6"
    before, after = shoppers.split(columns()), shoppers.split(changed)
    assert np.array_equal(before.features, after.features)
    assert (after.test_features[:, 0] == 255).all()


def test_a_machine_without_the_file_is_told_what_it_needs_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    shoppers.load.cache_clear()
    with pytest.raises(places.NotHere, match="online_shoppers_intention") as told:
        shoppers.check()
    assert "\n" not in str(told.value)
