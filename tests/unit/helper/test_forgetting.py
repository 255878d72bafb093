"""Columns of a dataset that has expired are in no process any more, whichever engine opened them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from maskedlark.compute.errors import WorkersLost
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import resident
from maskedlark.helper.forgetting import forget_columns
from maskedlark.helper.seeds import SEEDS
from maskedlark.ledger import rows
from maskedlark.wire.datasets import JSON_TYPE
from tests.unit.compute.work import kept_shards
from tests.unit.helper.world import World, question, world
from tests.unit.release.stepping import network

ENGINES: dict[str, dict[str, Any]] = {
    "serial": {"engine": "serial"},
    "local-2": {"engine": "local", "workers": 2},
    "ray-2": {"engine": "ray", "address": "local", "workers": 2},
}


def everywhere(made: World) -> int:
    engine = made.service.engine
    return kept_shards(None, None) + sum(engine.map(kept_shards, None, range(engine.workers)))


def queried(made: World) -> World:
    """After a query over a dataset of one shard."""
    frozen = made.frozen(made.publish(k=20))
    made.remote().post("/v2/releases", question(frozen.digest), JSON_TYPE)
    return made


@pytest.mark.parametrize("engine", ["serial", "local-2", pytest.param("ray-2", marks=pytest.mark.long)])
def test_what_has_expired_is_kept_by_no_process(tmp_path, engine):
    with world(tmp_path, compute=ENGINES[engine]) as made:
        assert everywhere(queried(made)), "else nothing would be forgotten"
        made.clock.seconds += made.document.report_lifetime_s + 3600
        made.service.forget()
        assert not everywhere(made)


def test_expired_secrets_are_in_no_file_while_the_helper_runs(tmp_path):
    """Nor is the seed of a noise in the log of what was written, or in a page that is free."""
    with world(tmp_path) as made:
        service = queried(made).service
        columns = (SEEDS.c.message, rows.RECEIPTS.c.seed)
        found = [row[0] for each in columns for row in service.database.rows(select(each)) if row[0]]
        raw = partial(_in_files, made.folder / "state")
        assert len(found) == 2, "the seed that helpers share, sealed, and that of the noise"
        assert all(map(raw, found))
        made.clock.seconds += made.document.report_lifetime_s + 3600
        service.forget()
        assert not any(map(raw, found))


def _in_files(folder: Path, content: bytes) -> bool:
    return any(content in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_workers_that_are_away_are_told_later_and_all_else_is_deleted_now(tmp_path, monkeypatch):
    with world(tmp_path) as made:
        service, told = queried(made).service, []

        def away(*_):
            raise WorkersLost("the cluster cannot be used now; send the same request again")

        monkeypatch.setattr(service.engine, "map", away)
        expired: list[str] = []
        monkeypatch.setattr(service.seeds, "expire", lambda: expired.append("seeds"))
        monkeypatch.setattr(service.ledger, "forget", lambda _: expired.append("ledger"))
        monkeypatch.setattr(service.releases, "forget", lambda _: expired.append("releases"))
        made.clock.seconds += made.document.report_lifetime_s + 3600
        with pytest.raises(WorkersLost):
            service.forget()
        assert expired == ["seeds", "ledger", "releases"]
        assert not kept_shards(None, None)
        monkeypatch.setattr(service.engine, "map", lambda function, *_: told.append(function))
        service.forget()
        service.forget()
        assert told == [forget_columns], "once"


def test_nothing_stays_on_a_device():
    rng = np.random.default_rng(1)
    records = TrainingRecords(
        rng.integers(0, 256, (9, 16), dtype=np.uint8),
        rng.integers(0, 256, (9, 4), dtype=np.uint8),
        (np.array([[0, 1]]),),
        rng.integers(0, 1 << 40, (9, 2)),
    )
    resident.kept(records, network(), "cpu")
    forget_columns()
    assert not resident._KEPT
