"""Ours beside the authors': their point at the same place, and how many are near."""

from experiments import compared
from experiments.compared import EVERYWHERE, Near
from experiments.rows import Mean, Median, Row


def test_their_point_is_where_ours_is_or_there_is_none():
    assert compared.theirs("global_dp_accuracy", "MNIST", "bound=10", -1.0) == 79.3
    assert compared.theirs("global_dp_accuracy", "MNIST", "bound=10", -0.9) is None


def test_points_without_theirs_or_too_far_left_do_not_count():
    found = [(-1.0, 50.0, 90.0, "a, "), (0.5, 92.0, 90.0, "b, "), (1.0, 97.0, 90.0, "c, ")]
    told = compared.counted(Near(0.0, 3.0), [*found, (2.0, 0.0, None, "d, ")])
    assert told == (
        "1 of 2 points at log₁₀ ε ≥ 0 are within 3.0 accuracy points of the authors'; "
        "the farthest is 7.0 off (c, log₁₀ ε = 1.00)."
    )
    assert "1 of 3 points are within" in compared.counted(Near(EVERYWHERE, 3.0), found)
    assert compared.counted(Near(5.0, 3.0), found) == ""


def test_wbcd_has_medians_and_others_means():
    rows = [
        Row("k", name, "s", 1.0, seed, y, 1.0, {})
        for name in ("WBCD", "MNIST")
        for seed, y in enumerate((1.0, 2.0, 9.0))
    ]
    assert compared.points(rows, "WBCD", "s") == [Median(1.0, 2.0, 1.5, 5.5, 3)]
    (mean,) = compared.points(rows, "MNIST", "s")
    assert isinstance(mean, Mean)
    assert compared.cell(mean) == "4.0 ± 4.4"
    assert compared.cell(Median(1.0, 2.0, 1.5, 5.5, 3)) == "2.0"
