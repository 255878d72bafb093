"""What the ad server's table of datasets must do, whichever database it is in."""

import pytest

from maskedlark.adserver.dataset_store import Dataset, Datasets, DatasetState
from maskedlark.adserver.errors import DatasetChanged, NameTaken, Overlapping
from maskedlark.adserver.report_store import ChunkStart, Selection
from maskedlark.core.purpose import Purpose
from maskedlark.storage.engine import open_database
from maskedlark.wire.datasets import CheckAnswer, ChunkAnswer
from tests.unit.adserver.stored import DIGEST

MARKS = [ChunkStart(10, b"", 8), ChunkStart(10, b"i" * 16, 8), ChunkStart(12, b"j" * 16, 3)]


def span(start, end, purpose=Purpose.AGGREGATE, parameters=DIGEST):
    return Selection(purpose, parameters, start, end)


def answer(accepted="ff", **refused):
    return ChunkAnswer(parts=8, accepted=accepted, refused=refused)


@pytest.fixture
def database(database_url):
    database = open_database(database_url)
    yield database
    database.close()


@pytest.fixture
def datasets(database):
    return Datasets(database)


def test_what_is_kept_comes_back(datasets, database):
    datasets.add("monday", span(10, 20), MARKS)
    wanted = Dataset("monday", span(10, 20), 19, DatasetState.SELECTED)
    assert datasets.get("monday") == wanted
    again = Datasets(database)
    assert again.all() == [wanted]
    assert again.chunks("monday") == MARKS
    assert datasets.get("tuesday") is None


@pytest.mark.parametrize("other", [(0, 11), (19, 30), (0, 30), (12, 13)])
def test_of_one_time_there_is_one_dataset(datasets, other):
    datasets.add("monday", span(10, 20), MARKS)
    with pytest.raises(Overlapping, match="monday holds"):
        datasets.add("tuesday", span(*other), MARKS)
    assert datasets.get("tuesday") is None


@pytest.mark.parametrize(
    "other",
    [span(20, 30), span(0, 10), span(10, 20, Purpose.TRAIN), span(10, 20, parameters=bytes(32))],
)
def test_what_has_no_report_in_common_is_another_dataset(datasets, other):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.add("tuesday", other, MARKS)
    assert len(datasets.all()) == 2


def test_a_name_is_used_once(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.add("tuesday", span(20, 30), MARKS)
    with pytest.raises(NameTaken, match="a dataset tuesday already"):
        datasets.add("tuesday", span(0, 30), MARKS)


def test_an_aborted_one_is_in_nobodys_way_and_leaves_nothing_behind(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.keep("monday", 0, "helper-0", answer())
    datasets.mark("monday", DatasetState.ABORTED)
    assert datasets.get("monday").state is DatasetState.ABORTED
    datasets.add("monday", span(10, 15), MARKS[:1])
    assert datasets.chunks("monday") == MARKS[:1]
    assert datasets.answered("monday", "helper-0") == set()


def test_a_frozen_one_has_its_digest_and_stays(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.freeze("monday", b"d" * 32, 17)
    found = datasets.get("monday")
    assert (found.state, found.digest, found.records) == (DatasetState.FROZEN, b"d" * 32, 17)
    datasets.freeze("monday", b"d" * 32, 17)  # Two clients may finish it: they found the same.
    for end in (DatasetState.ABORTED, DatasetState.LOST):
        with pytest.raises(DatasetChanged, match="monday is frozen, not selected: another client was faster"):
            datasets.mark("monday", end)
    with pytest.raises(DatasetChanged):
        datasets.freeze("monday", b"e" * 32, 17)
    assert datasets.get("monday") == found


def test_what_somebody_else_took_back_is_not_frozen(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.mark("monday", DatasetState.ABORTED)
    datasets.mark("monday", DatasetState.ABORTED)
    with pytest.raises(DatasetChanged, match="monday is aborted"):
        datasets.freeze("monday", b"d" * 32, 17)
    with pytest.raises(DatasetChanged, match="tuesday is gone"):
        datasets.mark("tuesday", DatasetState.ABORTED)
    assert datasets.get("monday").state is DatasetState.ABORTED


def test_one_that_is_given_up_stays_in_the_way(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.mark("monday", DatasetState.LOST)
    for name, time, error in (("monday", (30, 40), NameTaken), ("tuesday", (15, 25), Overlapping)):
        with pytest.raises(error, match="monday"):
            datasets.add(name, span(*time), MARKS)


def test_only_a_frozen_one_expires(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    with pytest.raises(DatasetChanged, match="monday is selected, not frozen"):
        datasets.mark("monday", DatasetState.EXPIRED)
    datasets.freeze("monday", b"d" * 32, 17)
    datasets.mark("monday", DatasetState.EXPIRED)
    assert datasets.get("monday").state is DatasetState.EXPIRED


def test_answers_are_kept_by_helper_and_chunk_and_the_last_counts(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.keep("monday", 1, "helper-0", answer("f0", CannotOpen=3, WrongHelper=1))
    datasets.keep("monday", 1, "helper-0", answer("fe", CannotOpen=1))
    datasets.keep("monday", 0, "helper-0", answer("7f", CannotOpen=1))
    datasets.keep("monday", 0, "helper-1", answer())
    found = {(number, helper): said.accepted for number, helper, said in datasets.answers("monday")}
    assert found == {(0, "helper-0"): "7f", (0, "helper-1"): "ff", (1, "helper-0"): "fe"}
    assert datasets.answered("monday", "helper-0") == {0, 1}
    assert datasets.refusals("monday") == {"helper-0": {"CannotOpen": 2}, "helper-1": {}}


def test_the_same_answer_again_leaves_the_verdict_and_another_does_not(datasets):
    """A second client that sends the same dataset stores what the first has stored, and had checked."""
    datasets.add("monday", span(10, 20), MARKS)
    datasets.keep("monday", 0, "helper-0", answer(), b"first")
    datasets.keep("monday", 0, "helper-1", answer(), b"other")
    datasets.check("monday", 0, "helper-0", CheckAnswer(valid="7f", invalid=1))
    datasets.keep("monday", 0, "helper-0", answer(), b"again")
    kept = datasets.checks("monday", 0)["helper-0"]
    assert (kept.message, kept.is_checked, datasets.invalid("monday", "helper-0")) == (b"first", True, 1)
    assert [said.accepted for *_, said in datasets.answers("monday", checked=True)] == ["7f"]
    datasets.keep("monday", 0, "helper-0", answer("fe", CannotOpen=1), b"again")
    kept = datasets.checks("monday", 0)["helper-0"]
    assert (kept.message, kept.is_checked, datasets.invalid("monday", "helper-0")) == (b"again", False, None)
    assert datasets.unchecked("monday") == [0]


def test_answers_to_chunks_that_a_helper_lost_are_forgotten(datasets):
    datasets.add("monday", span(10, 20), MARKS)
    for number in range(3):
        datasets.keep("monday", number, "helper-0", answer())
    datasets.keep("monday", 1, "helper-1", answer())
    datasets.forget("monday", "helper-0", {0, 1})
    datasets.forget("monday", "helper-1", set())
    assert datasets.answered("monday", "helper-0") == {2}
    assert datasets.answered("monday", "helper-1") == {1}


@pytest.mark.parametrize("state", [DatasetState.ABORTED, DatasetState.LOST, DatasetState.FROZEN])
def test_check_messages_are_kept_only_until_a_dataset_is_done(datasets, state):
    datasets.add("monday", span(10, 20), MARKS)
    datasets.keep("monday", 0, "helper-0", answer(), b"numbers")
    assert datasets.checks("monday", 0)["helper-0"].message == b"numbers"
    with pytest.raises(DatasetChanged):
        datasets.mark("monday", DatasetState.EXPIRED)
    assert datasets.checks("monday", 0)["helper-0"].message == b"numbers"
    datasets.mark("monday", state)
    assert datasets.checks("monday", 0)["helper-0"].message is None
