"""The figure of one release: what is run, what its students learn, and what its tables say."""

from pathlib import Path

import numpy as np
import pytest

from experiments import rows as tables
from experiments.data import Split, shoppers
from experiments.figures import one_release, one_release_students, one_release_told
from experiments.figures.accounted_run import MASKED, OPACUS, PARTITIONED
from experiments.figures.one_release_checked import CHOSEN, HELD_OUT, REFINED, UNFITTED
from experiments.figures.one_release_choices import OF_CELLS, OWN
from experiments.figures.one_release_run import CELLS, MNIST, SHOPPERS, TAG, declared, workflow
from experiments.figures.one_release_told import CLEAR, LEARNT, LINEAR, ON_HTTP, RANDOMISED, STUDENT
from experiments.rows import Row
from experiments.size import Size
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import RandomisedResponse

ROOT = Path(__file__).parents[3]


def row(series, x, seed, y, dataset=SHOPPERS, **more):
    return Row(f"{series}{x}{seed}", dataset, series, x, seed, y, 1.0, more)


def test_every_point_has_all_seeds_and_stands_beside_gradients_and_clear_labels():
    wanted = one_release.jobs(Size.DEFAULT)
    seeds: dict[tuple[str, str, float], set[int]] = {}
    for job in wanted:
        seeds.setdefault((job.dataset, job.series, job.x), set()).add(job.seed)
    for (dataset, series, _), found in seeds.items():
        if series in (LINEAR, one_release_told.CELLS, LEARNT, RANDOMISED, CLEAR, STUDENT, REFINED):
            assert found == set(range({MNIST: 5, SHOPPERS: 8}[dataset]))
        if series in (UNFITTED, CHOSEN):
            assert found == set(range(1, 9)), "seed 0 is what they are held against"
    shown = {(dataset, series) for dataset, series, _ in seeds}
    both = (LINEAR, one_release_told.CELLS, RANDOMISED, STUDENT, MASKED, PARTITIONED, OPACUS)
    assert shown >= {(dataset, series) for dataset in (MNIST, SHOPPERS) for series in both}
    assert {job.dataset for job in wanted if job.alone} == {
        job.dataset for job in wanted if job.series == ON_HTTP
    }
    for dataset, count in ((MNIST, 5), (SHOPPERS, 8)):
        groups = {job.group for job in wanted if (job.series, job.dataset) == (LEARNT, dataset)}
        assert len(groups) == count, "features are learnt once for a seed"
    assert len({job.key for job in wanted}) == len(wanted)


def test_the_tables_have_both_adversaries_and_what_services_answered():
    rows = [
        row(LINEAR, 1.0, 0, 0.90, log_loss="0.22"),
        row(LINEAR, 1.0, 1, 0.92, log_loss="0.33"),
        row(CLEAR, 0.0, 0, 0.91, log_loss="0.20"),
        row(CLEAR, 0.0, 1, 0.93, log_loss="0.30"),
        row(MASKED, 1.0, 0, 0.87, coalition_epsilon="13.1"),
        row(one_release_told.CELLS, 0.25, 0, 95.8, MNIST),
        row(ON_HTTP, 1.0, 0, 0.9, of=LINEAR, in_memory="0.9", numbers="59", differing="0"),
    ]
    said = one_release.text(rows)
    assert "| 1 | 0.910 ± 0.014 | 0.870 (13.1) |" in said
    assert "Of labels in the clear: linear model 0.920 ± 0.014. Log-loss" in said
    assert "by ε: +10.0 % at 1." in said
    assert "| 0.25 | 95.8 |" in said
    assert "0.900 and 0.900; 59 numbers were compared, and every one has the same bits." in said


def test_what_was_checked_is_told_beside_it():
    more = {"constants": "ridge 1", "best_held_out": "0.92", "own_held_out": "0.91", "worst_held_out": "0.9"}
    rows = [
        row(LINEAR, 1.0, 0, 0.91),
        row(UNFITTED, 1.0, 1, 0.90),
        row(CHOSEN, 1.0, 1, 0.89, **more),
        row(HELD_OUT, 1.0, 0, 96.0, MNIST, constants=OWN),
        row(HELD_OUT, 1.0, 0, 96.5, MNIST, constants=[*OF_CELLS][1]),
        row(one_release_told.CELLS, 1.0, 0, 96.0, MNIST, rows_right="95.0"),
        row(one_release_told.CELLS, 1.0, 1, 96.0, MNIST, rows_right="95.0"),
        row(REFINED, 1.0, 0, 95.5, MNIST, rows_right="95.5"),
        row(REFINED, 1.0, 1, 95.9, MNIST, rows_right="95.5"),
    ]
    said = one_release.text(rows)
    assert "| 1 | 0.895 | 0.910 ± 0.000 | 0.900 ± 0.000 | 0.890 ± 0.000 |" in said
    assert "Chosen were: ridge 1 1 times. On the rows that chose, the best is 0.0100 better" in said
    assert "0.5 points over the package's own at ε = 1." in said
    assert "| MNIST, 1; 2 seeds | 96.0 | 95.7 | -0.30 ± 0.20 | +0.50 ± 0.00 % |" in said


def test_splits_are_drawn_as_data_is():
    first, second = shoppers.parts(400, 0), shoppers.parts(400, 5)
    assert sorted(np.concatenate(first)) == list(range(400))
    assert len(second[1]) == 100
    assert set(first[1]) != set(second[1])


def test_constants_are_changed_for_a_while_and_no_longer():
    from experiments.figures.one_release_constants import of_maps, part
    from maskedlark.fitting import maps

    rows = np.random.default_rng(1).integers(0, 256, (200, 3), dtype=np.uint8)
    before, other = maps.fit(rows, "abc", "buckets"), maps.fit(rows, "abc", "buckets", ridge=1.0)
    with of_maps({"ridge": 1.0}):
        assert np.array_equal(maps.fit(rows, "abc", "buckets").weight, other.weight)
    with of_maps({"BUCKETS": 3}):
        assert len(maps.fit(rows, "abc", "buckets").names) == 3 + 3 * 2
    assert np.array_equal(maps.fit(rows, "abc", "buckets").weight, before.weight)
    labels = np.arange(200)
    some = part(Split(rows, labels, rows[:0], labels[:0]), 0.8, 0)
    assert sorted([*some.labels, *some.test_labels]) == list(range(200))
    assert len(some.labels) == 160


def test_two_releases_cost_what_one_does_and_label_every_row():
    from experiments.figures.one_release_refined import twice

    rng = np.random.default_rng(2)
    rows = rng.integers(0, 256, (3000, 4), dtype=np.uint8)
    labels = (rows[:, 0] > 127).astype(np.int64)
    data = Split(rows, labels, rows[:0], labels[:0])
    with workflow(data, 0, CELLS) as client:
        found = twice(client, TAG, rows, None, 1.0, 0)
    assert found.charged == pytest.approx(2.0)
    assert found.second_cells > found.cells
    assert found.soft.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    # One release of four features finds about 90 %; chance is 50.
    assert (found.soft.argmax(axis=1) == labels).mean() > 0.8


def test_scores_are_counted_by_hand():
    labels = np.array([0, 0, 1, 1])
    assert one_release_students.auc(np.array([0.1, 0.2, 0.2, 0.3]), labels) == pytest.approx(3.5 / 4)
    assert one_release_students.log_loss(np.array([0.5, 0.5, 0.5, 0.5]), labels) == pytest.approx(np.log(2))
    data = Split(np.zeros((0, 1), np.uint8), labels[:0], np.zeros((4, 1), np.uint8), np.array([0, 1, 2, 2]))
    assert one_release_students.scores(np.eye(3)[[0, 1, 2, 0]], data) == {"y": 75.0}


def test_randomised_labels_are_learnt_by_their_likelihood():
    """A quarter of them are wrong: without the correction no chance would be over three quarters."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (4000, 2), dtype=np.uint8)
    truth = (rows[:, 0] > 127).astype(np.int64)
    kept, off = RandomisedResponse(1.0).unbiasing(LabelSpace.binary())
    sent = np.where(rng.random(len(truth)) < kept + off, truth, 1 - truth)
    data = Split(rows, truth, rows[:500], truth[:500])
    found = one_release_students.mapped(data, np.eye(2, dtype=np.float32)[sent], 0, kept, off)
    assert one_release_students.auc(found[:, 1], data.test_labels) > 0.97
    plain = one_release_students.mapped(data, np.eye(2, dtype=np.float32)[sent], 0)
    loss, uncorrected = (
        one_release_students.log_loss(each[:, 1], data.test_labels) for each in (found, plain)
    )
    assert loss < uncorrected - 0.1


def test_a_document_declares_the_one_function_that_is_asked():
    data = Split(
        np.zeros((2, 3), np.uint8), np.array([0, 9]), np.zeros((0, 3), np.uint8), np.zeros(0, np.int64)
    )
    assert "classes = 10" in declared(data, CELLS, 9.0)
    assert "mechanisms.moments" not in declared(data, CELLS, 9.0)


def test_a_figure_without_noise_or_gradients_is_drawn(tmp_path):
    drawn = one_release.draw([row(LINEAR, x, 0, 0.9) for x in (0.5, 1.0)], tmp_path)
    assert [each for each in drawn if (tmp_path / each).read_text().startswith("<?xml")] == drawn


def test_the_readmes_first_table_has_what_was_found():
    rows = tables.read(ROOT / "docs" / "results" / "one_release.csv")

    def mean(dataset, series, x):
        return next(each.y for each in tables.means(rows, dataset, series) if each.x == x)

    def costs(dataset):
        row = next(each for each in tables.of(rows, dataset, MASKED) if each.x == 2.0)
        return f" ({row.number('coalition_epsilon'):.3g})"

    def told(dataset, series, x):
        if series is None:
            return ""
        digits, unit = (1, " %") if dataset == MNIST else (3, "")
        return f"{mean(dataset, series, x):.{digits}f}{unit}" + (costs(dataset) if series == MASKED else "")

    cells = one_release_told.CELLS
    wanted = [
        (0.25, cells, LINEAR), (1.0, cells, LINEAR), (0.25, LEARNT, None), (2.0, MASKED, MASKED),
        (2.0, OPACUS, OPACUS), (1.0, RANDOMISED, RANDOMISED), (0.0, STUDENT, STUDENT),
    ]  # fmt: skip
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")][2:9]
    for line, (x, images, visits) in zip(table, wanted, strict=True):
        shown = f"{x:g}" if x else "∞", told(MNIST, images, x), told(SHOPPERS, visits, x)
        assert line.endswith(f"| {' | '.join(shown)} |")
