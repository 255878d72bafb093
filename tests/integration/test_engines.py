"""The same requests give the same bytes and receipts from every engine, database and storage."""

import shutil
from pathlib import Path

import pytest

from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.datasets import CheckAnswer, ChunkAnswer, Frozen
from tests.integration import checked_reports, engine_life
from tests.integration.engine_fixtures import LONG, cluster, compute, copied, expected, prepared, three_nodes
from tests.integration.engine_life import CHUNKS, EACH, QUERIES, STEPS

__all__ = ["cluster", "copied", "expected", "prepared", "three_nodes"]

WHOLE = 64 << 20
"""So that a dataset is one shard."""


def shards(folder: Path) -> int:
    """Of the datasets to aggregate, on the helper's own disk or sealed."""
    places = folder / "state" / "columns", folder.with_name("sealed")
    return len([path for place in places for path in place.glob("*/columns-*/*.ids")])


def test_a_life_is_what_it_seems(expected):
    """Else equal bytes would mean little."""
    accepted = "f" * 7 + "c"
    for purpose in ("aggregate", "train"):
        for number in range(CHUNKS):
            assert ChunkAnswer.decode(expected[f"{purpose}-chunk-{number}"]).accepted == accepted
        assert Frozen.decode(expected[f"{purpose}-freeze"]).records == EACH * CHUNKS
        assert ChunkAnswer.decode(expected[f"{purpose}-other-chunk"]).refused == {"Replayed": EACH}
    checked, forged = checked_reports.COUNT, len(checked_reports.FORGED)
    assert CheckAnswer.decode(expected["checked-verdict"]).invalid == forged
    assert Frozen.decode(expected["checked-freeze"]).records == checked - forged
    numbers = Checks.decode(SignedChecks.decode(expected["checked-numbers"]).body).numbers
    assert numbers.shape == (checked, 2)
    assert (numbers > 0).all()
    asked = [*QUERIES, *(f"step-{number}" for number in range(STEPS))]
    assert len({expected[name] for name in asked}) == len(asked)


ENGINES = [
    "serial",
    "local-2",
    "ray-2",
    pytest.param("local-1", marks=LONG),
    pytest.param("local-4", marks=LONG),
    *(pytest.param(f"ray-{workers}", marks=LONG) for workers in (1, 4)),
    *(pytest.param(f"ray-{workers} three_nodes", marks=LONG) for workers in (1, 2, 4)),
]


@pytest.mark.parametrize("named", ENGINES)
def test_every_engine_gives_the_same_bytes(request, named, copied, expected):
    assert engine_life.led(copied, compute(request, named)) == expected
    assert shards(copied) > 4


@pytest.mark.parametrize("named", ENGINES)
@LONG
def test_every_engine_gives_the_same_bytes_over_a_server(request, named, copied, expected, postgresql_url):
    assert engine_life.led(copied, compute(request, named), postgresql_url) == expected


@pytest.mark.parametrize("named", ["local-2", pytest.param("ray-2 three_nodes", marks=LONG)])
def test_sealed_files_give_the_same_bytes(request, named, copied, expected, postgresql_url, tmp_path):
    """As on several machines: a server, and storage that all reach."""
    sealed = compute(request, named, storage=f"file://{tmp_path}/sealed")
    assert engine_life.led(copied, sealed, postgresql_url) == expected
    assert not [*(copied / "state" / "columns").glob("*/columns-*")]


@pytest.mark.parametrize("named", ["serial", "local-2", pytest.param("ray-2", marks=LONG)])
def test_one_shard_gives_the_same_bytes_as_many(request, named, copied, expected):
    assert engine_life.led(copied, compute(request, named, shard_bytes=WHOLE)) == expected
    assert shards(copied) == 2, "one of each dataset to aggregate"


@pytest.mark.parametrize("then", [pytest.param(each, marks=LONG) for each in ("local-2", "ray-2")])
def test_another_engine_over_what_one_has_charged_gives_the_same_bytes(
    request, then, copied, expected, tmp_path
):
    """The answers that were kept are gone, so that every one is computed again from the stored seeds."""
    sealed = f"file://{tmp_path}/sealed"
    engine_life.led(copied, compute(request, "serial", storage=sealed), until="close")
    shutil.rmtree(copied / "state" / "answers")
    for name in (*QUERIES, f"step-{STEPS - 1}"):
        (copied / "answers" / name).unlink()
    assert engine_life.led(copied, compute(request, then, storage=sealed)) == expected
