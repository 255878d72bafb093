"""A helper's start: alone in its folder, and nothing that it makes is open to others."""

import asyncio
import os
import signal
import subprocess
import sys

import httpx
import pytest
from sqlalchemy import select

from maskedlark.clock import FixedClock
from maskedlark.errors import Expired
from maskedlark.helper.app import create_app
from maskedlark.helper.errors import FolderInUse
from maskedlark.helper.service import open_service
from maskedlark.helper.tables import DATASETS, MARK
from maskedlark.randomness import SystemRandomness
from maskedlark.web.errors import ClockDisagrees, StaleRequest, UnknownDataset, UnknownDocument
from maskedlark.web.remote import SignedRemote
from tests.unit.helper.world import (
    DAY_S,
    NAME,
    NOW,
    ORIGIN,
    OTHER,
    OTHER_DOCUMENT_KEY,
    OTHER_KEY,
    begin,
    running,
    settings,
    world,
)
from tests.unit.parameters.cases import REQUEST_KEY
from tests.unit.web.service import away

_HOLDER = """
import sys, time
from pathlib import Path
from maskedlark.helper.folder_lock import only_process
with only_process(Path(sys.argv[1])):
    print("alone", flush=True)
    time.sleep(600)
"""


def test_two_processes_do_not_run_on_one_folder(tmp_path):
    with (
        world(tmp_path) as first,
        pytest.raises(FolderInUse, match=r"^another process, \d+, runs on .*state: stop it with `kill \d+`"),
        running(tmp_path, settings(tmp_path), first.clock),
    ):
        pytest.fail("it must not start")
    with running(tmp_path, settings(tmp_path), first.clock) as again:
        assert again.http().get("/ready").status_code == 200


def test_a_process_that_was_killed_lets_go_of_its_folder(tmp_path):
    with world(tmp_path):
        pass
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "alone\n"
        with pytest.raises(FolderInUse), running(tmp_path, settings(tmp_path), FixedClock(NOW)):
            pytest.fail("it must not start")
        holder.send_signal(signal.SIGKILL)
    with running(tmp_path, settings(tmp_path), FixedClock(NOW)) as again:
        assert again.http().get("/ready").status_code == 200


def test_the_database_is_ours_alone_wherever_it_is(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    before = os.umask(0o022)
    try:
        with world(tmp_path, database=f"sqlite:///{elsewhere / 'helper.sqlite'}"):
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in elsewhere.iterdir()}
    finally:
        os.umask(before)
    assert modes["helper.sqlite"] == modes["helper.sqlite-wal"] == "0o600"
    assert set(modes.values()) == {"0o600"}


def watermark(helper):
    (mark,) = helper.service.database.rows(select(MARK.c.watermark))[0]
    return mark


def key_file(helper):
    return (helper.folder / "state" / "keys" / "keys.json").read_bytes()


@pytest.mark.parametrize("off", [int(29.9 * DAY_S), -3000])
def test_a_start_with_a_wrong_clock_loses_nothing(tmp_path, off, caplog):
    with world(tmp_path) as helper:
        document, before = helper.publish(k=20), (watermark(helper), key_file(helper))
        frozen = helper.frozen(document)
        begin(helper.remote(), document, "tuesday")
    with running(tmp_path, settings(tmp_path), FixedClock(NOW + off), FixedClock(NOW)) as helper:
        answer = helper.http().get("/ready")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/clock-disagrees")
        assert "the clock says" in answer.json()["detail"]
        assert answer.json()["detail"] in caplog.text
        with pytest.raises(ClockDisagrees):  # Its ad server has the same wrong clock.
            begin(helper.remote(), document, "wednesday")
        helper.service.forget()
        assert (watermark(helper), key_file(helper)) == before
    with running(tmp_path, settings(tmp_path), FixedClock(NOW)) as helper:
        assert helper.http().get("/ready").status_code == 200
        assert helper.service.find(ORIGIN, bytes.fromhex(frozen.digest)).size(None) == frozen.records
        assert helper.service.datasets.state(ORIGIN, "tuesday").state == "open"
        assert watermark(helper) == before[0] == NOW


def test_a_clock_that_is_put_right_is_ready_and_deletes_without_a_restart(tmp_path):
    with world(tmp_path) as helper:
        helper.frozen(helper.publish(k=20))
    late = FixedClock(NOW + 3 * DAY_S)
    with running(tmp_path, settings(tmp_path), clock := FixedClock(NOW), late) as helper:
        assert helper.http().get("/ready").status_code == 503
        app = create_app(helper.service, forget_every_s=0.01)

        async def run():
            async with app.router.lifespan_context(app):
                clock.seconds = late.seconds
                for _ in range(3000):
                    if watermark(helper) != NOW:
                        return
                    await asyncio.sleep(0.02)

        asyncio.run(run())
        assert watermark(helper) == late.seconds
        helper.service.check()


def test_after_40_days_off_it_deletes_by_itself(tmp_path):
    with world(tmp_path) as helper:
        frozen = helper.frozen(helper.publish(k=20))
        columns = [*(tmp_path / "state" / "columns").rglob("*")]
    assert columns
    late = FixedClock(NOW + 40 * DAY_S)
    with running(tmp_path, settings(tmp_path), late) as helper:
        assert watermark(helper) == late.seconds
        with pytest.raises(Expired):
            helper.service.find(ORIGIN, bytes.fromhex(frozen.digest))
    assert not [each for each in columns if each.exists()]


def test_without_a_parameter_service_it_serves_and_deletes_nothing(tmp_path):
    with world(tmp_path) as helper:
        frozen = helper.frozen(helper.publish(k=20))
    late, nobody = FixedClock(NOW + 29 * DAY_S), httpx.Client(transport=httpx.MockTransport(away))
    with open_service(settings(tmp_path), late, SystemRandomness(), nobody) as service:
        service.check()
        service.forget()
        assert service.database.rows(select(MARK.c.watermark))[0][0] == NOW
        found = service.database.rows(select(DATASETS.c.state))
        assert [row.state for row in found] == ["frozen"]
    with running(tmp_path, settings(tmp_path), FixedClock(NOW)) as helper:
        assert helper.service.find(ORIGIN, bytes.fromhex(frozen.digest)).size(None) == frozen.records


def test_signed_requests_of_two_origins_confirm_and_none_makes_it_unready(tmp_path, monkeypatch):
    with world(tmp_path) as helper:
        helper.publish()
        helper.publish(OTHER_DOCUMENT_KEY, origin=OTHER, request_key=OTHER_KEY.verifying.public.hex())
        service = helper.service
        check = service.clock_check
        monkeypatch.setattr(service.parameters, "time", missing)
        check.compare()
        assert not check.is_confirmed
        first, second = helper.remote(), helper.remote(OTHER_KEY, OTHER)
        old = FixedClock(NOW - 30 * DAY_S)
        replayed = SignedRemote("http://helper.test", NAME, ORIGIN, REQUEST_KEY, old, helper.http())
        for _ in range(3):
            with pytest.raises(StaleRequest):
                replayed.get("/v2/datasets/monday")
            with pytest.raises(UnknownDataset):
                first.get("/v2/datasets/monday")
            assert not check.is_confirmed
            assert helper.http().get("/ready").status_code == 200
        with pytest.raises(UnknownDataset):
            second.get("/v2/datasets/monday")
        assert check.is_confirmed


def missing(nonce):
    raise UnknownDocument("an older service has no such page")
