"""The cost figure: every batch size of the authors', each alone, and a verdict that can go against us."""

import pytest

from benches import training
from experiments import authors
from experiments.figures import cost
from experiments.rows import Row
from experiments.size import Size


def row(name: str, batch: float, ratio: float) -> Row:
    more = {
        "records": "6000",
        "rounds": "20",
        "spread": "0.1",
        "whole_loop": "1.5",
        "http_ms": "20.0",
        "memory_ms": "10.0",
        "request_bytes": "400000.0",
        "answer_bytes": "3000000.0",
        "upload_bytes_a_record": "1200.0",
        "upload_ms_a_record": "0.5",
    }
    return Row("key", name, cost.SERIES, batch, 0, ratio, 1.0, more)


def rows(ratio: float) -> list[Row]:
    return [row(name, batch, ratio) for name, shape in cost.SHAPES.items() for batch in shape.all]


@pytest.mark.parametrize("size", [Size.DEFAULT, Size.FULL])
def test_every_batch_size_of_the_authors_is_measured_and_nothing_beside_it(size):
    wanted = cost.jobs(size)
    for name, shape in cost.SHAPES.items():
        theirs = [point.x for point in authors.points("cost_multiplier", shape.authors)]
        assert [job.x for job in wanted if job.dataset == name] == theirs
    assert all(job.alone for job in wanted)


def test_all_batch_sizes_of_a_network_have_the_same_services():
    groups = {job.group: job.dataset for job in cost.jobs(Size.DEFAULT)}
    assert sorted(groups.values()) == sorted(cost.SHAPES)
    assert all(job.together is cost.together for job in cost.jobs(Size.DEFAULT))
    assert len(cost.jobs(Size.QUICK)) == 2


def test_settings_are_those_of_the_loops_that_are_timed():
    for shape in cost.SHAPES.values():
        case, given = training.CASES[shape.case], cost._settings(shape, Size.DEFAULT)
        assert given["network"] == "-".join(map(str, case.sizes))
        assert (given["steps_a_round"], given["noise"]) == (case.round, training.NOISE)


def test_a_machine_without_data_can_run_it():
    from experiments.data import MODULES

    assert not {job.dataset for job in cost.jobs(Size.QUICK)} & set(MODULES)


def test_the_first_epoch_bears_the_upload_of_its_records():
    assert cost._first(row("MNIST network", 100, 2.0)) == 2.0 + 100 * 0.5 / 10


def test_the_page_tells_the_first_epoch_from_those_after_it():
    told = " ".join(cost.text(rows(2.0)).split())
    assert "costs 2.0 to 2.0 times one that is run locally; the first, 2.2 to 52.0 times" in told
    assert "The authors' cost 6.6 to 45.1 times, and contain the data in every request" in told
    assert "| MNIST | 100 | 39.6 | 7.00 | 2.00 | 1.50 | 20.0 | 10.0 |" in told
    assert "under the authors'" not in told


def test_an_epoch_that_was_scaled_up_says_so():
    assert "6,000 records of an epoch's 50,000" in cost.text(rows(2.0))


def test_bytes_of_an_upload_are_those_of_the_batch():
    request, both, all_of_it = (
        cost._kilobytes(row("MNIST network", 100, 2.0), each) for each in cost._PARTS.values()
    )
    assert (request, both, all_of_it) == (400.0, 3400.0, 3520.0)


def test_both_plots_name_their_axes(tmp_path):
    for name in cost.draw(rows(3.0)[:7], tmp_path):
        drawn = (tmp_path / name).read_text()
        assert "batch size (records)" in drawn
        assert "WBCD" not in drawn, "a network without rows has no panel"


@pytest.mark.long
def test_both_loops_run_through_real_processes():
    job = next(job for job in cost.jobs(Size.QUICK) if job.dataset == "WBCD network")
    found = cost.measured(job)
    assert found["y"] > 0
    # One weight is a byte, one coordinate of a gradient eight: 4,151 of each.
    assert 4151 < found["request_bytes"] < 6000
    assert 8 * 4151 < found["answer_bytes"] < 8 * 4151 + 1000
