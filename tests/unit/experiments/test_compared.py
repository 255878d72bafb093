"""Ours beside the authors': their point at the same place, and how many are near."""

import statistics

from experiments import compared
from experiments.compared import THREE_ROWS, Beside, Near, Theirs
from experiments.rows import Mean, Median, Row


def test_their_point_is_where_ours_is_or_there_is_none():
    assert compared.theirs("global_dp_accuracy", "MNIST", "bound=10", -1.0) == 79.3
    assert compared.theirs("global_dp_accuracy", "MNIST", "bound=10", -0.9) is None


def beside(x, runs, theirs, series):
    return Beside(Median(x, statistics.median(runs), 0.0, 100.0, len(runs)), runs, theirs, series)


def test_points_without_theirs_or_too_far_left_do_not_count():
    found = [beside(-1.0, [50.0], 90.0, "a"), beside(0.5, [92.0], 90.0, "b"), beside(1.0, [97.0], 90.0, "c")]
    told = compared.counted(Near(0.0, 3.0), [*found, beside(2.0, [0.0], None, "d")])
    assert told == (
        "1 of 2 points at log₁₀ ε ≥ 0 are within 3.0 accuracy points of the authors'; "
        "the farthest is 7.0 off (c, log₁₀ ε = 1.00). "
        "To the left of that the farthest is 40.0 off (a, log₁₀ ε = -1.00)."
    )
    everywhere = compared.counted(THREE_ROWS, found)
    assert everywhere.startswith("1 of 3 points are within 4.4 accuracy points (three of 69 rows) of")
    assert "left" not in everywhere
    assert compared.counted(Near(5.0, 3.0), found) == ""


def test_what_is_missed_is_told_with_how_near_single_runs_are():
    near, far = (
        beside(0.0, [75.4, 75.4, 24.6], 75.4, "ψ = 4"),
        beside(1.0, [24.6, 30.0, 75.4, 75.0], 75.4, ""),
    )
    told = compared.missed(THREE_ROWS, [near, far]).splitlines()
    # Of four runs two are near; of six pairs the one of the last two.
    assert told[2:] == ["| log₁₀ ε = 1.00 | 75.4 | 52.5 | 50 % | 17 % |"]
    assert compared.missed(THREE_ROWS, [near]) == ""


def test_points_have_their_runs_and_the_authors():
    rows = [Row("k", "MNIST", "s", -1.0, seed, y, 1.0, {}) for seed, y in enumerate((78.0, 80.0))]
    (found,) = compared.beside(rows, "MNIST", "s", Theirs("global_dp_accuracy", "bound=10", "ψ = 10"))
    assert (found.point.y, found.runs, found.theirs) == (79.0, [78.0, 80.0], 79.3)
    assert found.named == "ψ = 10, log₁₀ ε = -1.00"


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
