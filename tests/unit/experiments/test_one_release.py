"""The figure of one release: what is run, and what its table says."""

import numpy as np
import pytest

from experiments.figures import one_release, one_release_run
from experiments.rows import Row
from experiments.size import Size


def row(series, x, seed, y, loss):
    return Row(f"{series}{x}{seed}", one_release.SHOPPERS, series, x, seed, y, 1.0, {"log_loss": str(loss)})


def test_every_point_has_eight_splits_and_stands_beside_clear_labels_and_gradients():
    wanted = one_release.jobs(Size.DEFAULT)
    linear = [job for job in wanted if job.series == one_release.LINEAR]
    assert {(job.x, job.seed) for job in linear} == {(x, s) for x in one_release.EPSILONS for s in range(8)}
    assert {job.seed for job in wanted if job.series == one_release.CLEAR} == set(range(8))
    assert [job for job in wanted if job.series == one_release.GRADIENTS]
    assert all(job.settings["epsilon"] == job.x for job in linear)


def test_the_table_compares_log_losses_on_the_same_splits():
    rows = [
        row(one_release.LINEAR, 1.0, 0, 0.90, 0.22),
        row(one_release.LINEAR, 1.0, 1, 0.92, 0.33),
        row(one_release.CLEAR, 0.0, 0, 0.91, 0.20),
        row(one_release.CLEAR, 0.0, 1, 0.93, 0.30),
        row(one_release.GRADIENTS, 1.0, 0, 0.86, 0.4),
    ]
    said = one_release.text(rows)
    assert "| 1 | 0.910 ± 0.014 | 0.275 | +10.0 % | 0.860 |" in said
    assert "| clear | 0.920 ± 0.014 | 0.250 |  |  |" in said


def test_scores_are_counted_by_hand():
    labels = np.array([0, 0, 1, 1])
    assert one_release_run.auc(np.array([0.1, 0.2, 0.2, 0.3]), labels) == pytest.approx(3.5 / 4)
    assert one_release_run.log_loss(np.array([0.5, 0.5, 0.5, 0.5]), labels) == pytest.approx(np.log(2))


def test_a_figure_without_noise_or_gradients_is_drawn(tmp_path):
    drawn = one_release.draw([row(one_release.LINEAR, x, 0, 0.9, 0.2) for x in (0.5, 1.0)], tmp_path)
    assert [each for each in drawn if (tmp_path / each).read_text().startswith("<?xml")] == drawn
