"""Accuracy against noise on features: what is run, and what is said of it."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from experiments import over_http, settings
from experiments.data import wbcd
from experiments.figures import local_dp
from experiments.figures import local_dp_told as told
from experiments.jobs import Job, Value
from experiments.memory import Local
from experiments.rows import Row
from experiments.size import Size
from maskedlark.core.local_dp import FeatureNoise
from maskedlark.simulate.cluster import MAX_BUDGET, MAX_COALITION

SMALL: dict[str, Value] = {
    "network": "30-50-50-1",
    "rows": 500,
    "batch": 100,
    "learning_rate": 0.5,
    "epochs": 3,
    "bound": 48.0,
    "fraction": 20,
    "noise_scale": 1.0,
    "unit_bytes": 32.0,
}


def rows(datasets=("MNIST", "WBCD"), y=97.0):
    found = {
        "total_epsilon": 1108.7,
        "feature_epsilon": 2.0,
        "with_noise_at_serving": 61.25,
        "in_memory": 50.0,
        "differing_weights": 0,
        "weights": 9,
    }
    return [
        Row(job.key, job.dataset, job.series, job.x, job.seed, y, 1.0,
            {name: str(value) for name, value in {**job.settings, **found}.items()})
        for job in local_dp.jobs(Size.DEFAULT) if job.dataset in datasets
    ]  # fmt: skip


def test_both_ways_have_the_same_points():
    jobs = local_dp.jobs(Size.DEFAULT)
    for dataset in ("MNIST", "WBCD"):
        ways = [
            {job.x for job in jobs if job.dataset == dataset and job.series == series}
            for series in (told.AS_RUN, told.OURS)
        ]
        assert ways[0] == ways[1]
    assert len({job.key for job in jobs}) == len(jobs)
    assert [job.series for job in jobs if job.alone] == [told.HTTP]


def test_noise_is_as_large_as_the_plot_says():
    data = wbcd.in_deviations()
    noisy = local_dp.noised(data, FeatureNoise(2.0, float(wbcd.DEVIATION)), 0)
    moved = (noisy.features.astype(float) - data.features)[(data.features > 90) & (data.features < 160)]
    # A scale of half a deviation; 10,000 draws and more, and hardly any reach the ends of a byte.
    assert np.abs(moved).mean() == pytest.approx(wbcd.DEVIATION / 2, rel=0.05)
    assert np.array_equal(noisy.test_features, data.test_features)


def test_what_a_record_is_promised():
    found = local_dp.ours(Job("WBCD", told.OURS, 0.0, 0, local_dp.ours, SMALL))
    assert found["feature_epsilon"] == pytest.approx(255 / 32)
    assert found["total_epsilon"] == pytest.approx(30 * 255 / 32)
    assert 0 <= found["y"] <= 100


def test_as_run_needs_no_bytes():
    little, much = (
        local_dp.as_run(Job("WBCD", told.AS_RUN, x, 0, local_dp.as_run, {**SMALL, "epochs": 20}))["y"]
        for x in (2.0, -3.0)
    )
    assert little > 90 > much


@pytest.mark.parametrize("datasets", [("MNIST", "WBCD"), ("WBCD",), ("MNIST",)])
def test_it_is_drawn_and_told_of_what_there_is(tmp_path, datasets):
    found = rows(datasets)
    assert local_dp.draw(found, tmp_path) == [path.name for path in tmp_path.iterdir()]
    words = local_dp.text(found)
    assert "It protects no label at all" in " ".join(words.split())
    for name in ("MNIST", "WBCD"):
        assert (f"| {name}, log₁₀ ε |" in words) == (name in datasets)
    assert words.count("| 1,109 |") == sum({"MNIST": 6, "WBCD": 9}[name] for name in datasets)
    assert words.count("| 61.2") == words.count("| 1,109 |"), "rows that have noise when they are served"


def test_the_document_over_http_fits_what_helpers_accept():
    """What sums without noise tell of labels is on top of a source's budget, against either."""
    (job,) = [job for job in local_dp.jobs(Size.DEFAULT) if job.alone]
    own = replace(
        settings.run(job), local=Local(2.0, float(job.settings["label_epsilon"]), float(wbcd.DEVIATION))
    )
    declared = tomllib.loads(over_http.settings(own))
    most = declared["budget"]["epsilon"] + declared["models"][0]["randomised_response"]["epsilon"]
    assert most <= MAX_BUDGET.epsilon
    assert most + declared["training"]["coalition"]["epsilon"] <= MAX_COALITION.epsilon
    assert own.clip.psi == 2
    assert "no point of the plot" in told.text(rows())


def test_distances_to_the_authors_are_counted():
    assert "3 of 3 points at log₁₀ ε ≥ 0 are within 3.0" in told.text(rows(("MNIST",), y=96.0))
    assert "0 of 3 points at log₁₀ ε ≥ 0 are within 3.0" in told.text(rows(("MNIST",), y=50.0))


def test_points_of_few_rows_that_miss_are_told_with_their_reason():
    assert "the curve is steep" in told.text(rows(("WBCD",), y=85.5))
    assert "the curve is steep" not in told.text(rows(("MNIST",), y=50.0))
