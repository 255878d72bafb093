"""The vectors in `vectors/v2` are what the generator makes, and the twins agree with every one of them."""

import pytest

from tests.twins import batches, zero_sum
from vectors import SECOND, load, of_helpers


@pytest.mark.parametrize("name", of_helpers.FILES)
def test_the_stored_vectors_are_the_generated_ones(name):
    assert (SECOND / f"{name}.json").read_text() == of_helpers.text(name)


def of_kind(kind):
    return [each for each in load("batches", SECOND) if each["kind"] == kind]


@pytest.mark.parametrize("vector", [each for each in of_kind("poisson") if each["records"] <= 400])
def test_poisson_batches(vector):
    seed, tag, slot = bytes.fromhex(vector["seed"]), vector["tag"], vector["slot"]
    found = batches.poisson(seed, tag, slot, vector["rate"], vector["records"])
    assert found == (vector["batch"], vector["rows"])
    assert batches.room(vector["rate"], vector["records"]) == vector["room"]


@pytest.mark.parametrize("vector", of_kind("held out"))
def test_held_out(vector):
    seed, records = bytes.fromhex(vector["seed"]), vector["records"]
    given = seed, vector["tag"], vector["share"], records
    assert [each for each in range(records) if batches.is_held_out(*given, each)] == vector["rows"]


@pytest.mark.parametrize("vector", of_kind("partition"))
def test_partitions(vector):
    seed, count = bytes.fromhex(vector["seed"]), len(vector["batches"])
    for number, rows in enumerate(vector["batches"]):
        for row in rows:
            given = seed, vector["tag"], vector["slot"], count, vector["records"], row
            assert batches.place(*given) == number
    rows = [row for batch in vector["batches"] for row in batch]
    assert sorted(rows) == list(range(vector["records"]))


@pytest.mark.parametrize("vector", load("answer-masks", SECOND))
def test_masks_on_answers(vector):
    seeds = [bytes.fromhex(each) for each in vector["seeds"]]
    bound = [
        bytes.fromhex(part) if isinstance(part, str) else [bytes.fromhex(each) for each in part]
        for part in vector["bound"]
    ]
    key = zero_sum.key(seeds, *bound)
    assert key.hex() == vector["key"]
    answers = [[int(number) for number in each] for each in vector["answers"]]
    for place, (answer, masked) in enumerate(zip(answers, vector["masked"], strict=True)):
        assert [str(each) for each in zero_sum.masked(answer, key, place, len(answers))] == masked
    totals = [sum(map(int, column)) % zero_sum.P for column in zip(*vector["masked"], strict=True)]
    assert totals == [sum(column) % zero_sum.P for column in zip(*answers, strict=True)]
