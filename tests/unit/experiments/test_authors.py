"""The authors' points, as they were read."""

from experiments import authors


def test_series_and_points():
    assert authors.series("global_dp_accuracy", "MNIST") == [
        f"bound={each}" for each in ("10", "5", "2", "1", "0.5", "0.1", "0.01")
    ]
    found = authors.points("global_dp_accuracy", "MNIST", "bound=10")
    assert len(found) == 17
    assert (found[0].x, found[0].y) == (-1.0, 79.3)
    assert (found[-1].x, found[-1].y) == (1.5263, 97.8)
    assert [point.x for point in found] == sorted(point.x for point in found)
    assert len(authors.points("local_dp_accuracy", "WBCD")) == 40
    assert authors.points("cost_multiplier", "MNIST")[0].y == 45.12
    assert len({(p.figure, p.dataset) for p in authors._all()}) == 8


def test_wbcd_is_in_rows_of_69():
    for point in authors._all():
        if point.dataset == "WBCD" and point.figure.endswith("accuracy"):
            assert abs(point.y * 69 / 100 - round(point.y * 69 / 100)) < 0.01
