"""Column files that change after they were read: nothing is computed from them, and no process ends."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benches.ingest import TAG, document_of
from benches.scale import _moments, _network, _weights
from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.local import LocalEngine
from maskedlark.core import field, sharing
from maskedlark.core.candidates import Sample
from maskedlark.core.declared import Category, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.exact.clip import Clip, Norm
from maskedlark.functions.function import Query
from maskedlark.functions.gradient import GradientQuery
from maskedlark.helper import shards
from maskedlark.helper.errors import DamagedDataset
from maskedlark.helper.shards import StoredShard
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.release.shards import Computation, ShardRows, compute
from maskedlark.web.errors import ServiceAway
from maskedlark.wire.datasets import JSON_TYPE
from tests.statistical.shard_work import stored
from tests.unit.compute.work import keep_one_shard
from tests.unit.helper.world import ORIGIN, World, question, world

RECORDS, SHARDS = 1500, 4


def flip(path: Path) -> None:
    """One bit, in the middle, as a failing disk does."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], object]] = {"flipped": flip, "shorter": truncate, "gone": Path.unlink}


@pytest.fixture(autouse=True)
def one_shard_is_kept(monkeypatch):
    """As of a dataset larger than memory: the first shard is kept, the others are read at every use."""
    shards.forget()
    monkeypatch.setattr(shards, "KEPT_BYTES", 1)
    yield
    shards.forget()


def made(folder: Path) -> list[StoredShard]:
    """A dataset to train in shards, each of several blocks."""
    rng, model = np.random.default_rng(1), document_of("none").declared_models[TAG]
    pieces = [
        TrainingRecords(
            rng.integers(0, 256, (RECORDS, 16), dtype=np.uint8),
            rng.integers(0, 256, (RECORDS, model.features), dtype=np.uint8),
            (np.array([[0, 1]]),),
            rng.integers(0, field.P, (RECORDS, model.secrets())),
        )
        for _ in range(SHARDS)
    ]
    return stored(folder, model, pieces)


def step(every: list[StoredShard], rows: int) -> list[ShardRows]:
    """So many records of each shard, in any order. One is in the middle, where the bit is that flips."""
    places = np.random.default_rng(2).permutation(RECORDS)[:rows].astype(np.uint32)
    places[0] = RECORDS // 2
    return [ShardRows(shard, places, np.ones(rows, np.bool_)) for shard in every]


def _gradient() -> Query:
    network = _network()
    return GradientQuery(TAG, network, _weights(network), Clip(1.0, Norm.L2, 19, 0))


def asked(engine: Engine, query: Query, rows: list[ShardRows]) -> bytes:
    (table,) = query.tables(compute(engine, Computation(query), rows), 1)
    return b"".join(column.tobytes() for column in table.shares)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("column", ["ids", "features", "shares"])
@pytest.mark.parametrize("what", ["step", "step over most", "moments"])
def test_a_file_that_changes_between_two_uses_is_noticed(tmp_path, what, column, damage):
    every, engine = made(tmp_path), SerialEngine()
    query = _moments() if what == "moments" else _gradient()
    rows = {
        "step": step(every, 4),
        "step over most": step(every, RECORDS - 7),
        "moments": [ShardRows(each) for each in every],
    }[what]
    assert asked(engine, query, rows) == asked(engine, query, rows)
    for each in (path := tmp_path / f"2.0-{column}"), tmp_path / f"0.0-{column}":
        before = each.read_bytes()
        DAMAGES[damage](each)
        if each == path:
            with pytest.raises(DamagedDataset, match=f"2.0-{column}"):
                asked(engine, query, rows)
            each.write_bytes(before)
    assert asked(engine, query, rows), "the first shard is in memory, where nothing can change it"


def test_rows_that_are_read_by_block_are_those_of_the_whole(tmp_path):
    every = made(tmp_path)
    rng = np.random.default_rng(3)
    wholes = [each.open() for each in every]
    for count in (0, 1, 5, 700, RECORDS):
        rows = rng.permutation(RECORDS)[:count]
        for shard, whole in zip(every, wholes, strict=True):
            found = shard.records(rows)
            assert isinstance(whole, TrainingRecords)
            assert isinstance(found, TrainingRecords)
            wanted = whole.select_rows(rows)
            for name in ("ids", "features", "shares"):
                assert np.array_equal(getattr(found, name), getattr(wanted, name))
                assert getattr(found, name).dtype == getattr(wanted, name).dtype
            assert [each.tolist() for each in found.candidates] == [[[0, 1]]]


def test_rows_of_a_model_without_byte_features_are_read_too(tmp_path):
    model, rng = Model("sampled", (Category(7),), (LabelSpace.categorical(9),), Sample(3)), SystemRandomness()
    records = TrainingRecords(
        sharing.random_rows(9, 16, rng),
        np.empty((9, 0), np.uint8),
        (rng.below(9, 27).reshape(9, 3),),
        rng.below(field.P, 9 * model.secrets()).reshape(9, -1),
        (rng.below(7, 9).reshape(9, 1).astype(np.uint32),),
    )
    rows = np.array([7, 0, 7])
    for shard in stored(tmp_path, model, [records, records]) * 2:
        found = shard.records(rows)
        assert isinstance(found, TrainingRecords)
        wanted = records.select_rows(rows)
        assert found.features.shape == (3, 0)
        assert found.indices[0].tolist() == wanted.indices[0].tolist()
        assert found.candidates[0].tolist() == wanted.candidates[0].tolist()


@pytest.mark.parametrize("damage", [pytest.param(each, marks=pytest.mark.long) for each in DAMAGES])
def test_workers_notice_it_too_and_go_on(tmp_path, damage):
    every = made(tmp_path)
    with closing(LocalEngine(2)) as engine:
        engine.map(keep_one_shard, None, range(2))
        rows = step(every, 4)
        first = asked(engine, _gradient(), rows)
        path = tmp_path / "3.0-features"
        before = path.read_bytes()
        DAMAGES[damage](path)
        with pytest.raises(DamagedDataset):
            asked(engine, _gradient(), rows)
        path.write_bytes(before)
        assert asked(engine, _gradient(), rows) == first


def receipts(made: World) -> Sequence[SignedReceipt]:
    return made.service.ledger.receipts(ORIGIN, 0)


@pytest.mark.parametrize("name", ["0.ids", "0.codes-0", "0.codes-1", "0.shares"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_helper_answers_nothing_from_a_file_that_changed(tmp_path, name, damage):
    with world(tmp_path) as made:
        document = made.publish(k=20)
        monday, tuesday = (made.frozen(document, each).digest for each in ("monday", "tuesday"))
        remote, folder = made.remote(), made.folder / "state" / "columns"

        def ask(digest: str, number: int) -> bytes:
            return remote.post("/v2/releases", question(digest, number=number), JSON_TYPE)

        first = ask(monday, 1)
        ask(tuesday, 2)
        (path,) = folder.glob(f"2/*/{name}")
        before, charged = path.read_bytes(), len(receipts(made))
        DAMAGES[damage](path)
        for _ in range(2):
            with pytest.raises(ServiceAway, match=f"{name} of a dataset is missing or damaged"):
                ask(tuesday, 3)
        assert len(receipts(made)) == charged + 1, "charged before the columns are read, and once"
        assert ask(monday, 1) == first, "the other dataset answers"
        path.write_bytes(before)
        answer = ask(tuesday, 3)
        assert len(receipts(made)) == charged + 1, "the same request is answered for that charge"
        assert ask(tuesday, 3) == answer
