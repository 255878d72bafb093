"""Services whose machine has a wrong clock: nothing is lost, and all goes on once the clock is right."""

import sqlite3
import time
from pathlib import Path

import httpx
import pytest

from maskedlark.browser.population import Population
from maskedlark.browser.upload import Progress
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.simulate.services import Process
from maskedlark.wire import uploads
from maskedlark.wire.uploads import Verdict
from tests.integration.uploading import (
    PATIENCE_S,
    command,
    made,
    parameter_service,
    stored,
    uploader,
    uploading,
)
from tests.integration.waiting import next_second
from tests.unit.browser.outbox import MemoryOutbox

SHIFTED = Path(__file__).with_name("shifted.py")
DAY_S = 86_400
SETTINGS = """
keys = ["campaign"]
k = 20
report_lifetime_s = 2592000
budget = {epsilon = 50.0, delta = 0.0}
[values]
bought = [0, 1]
"""


def ahead(process: Process, by: Path, seconds: int) -> Process:
    """The same service, whose clock is ahead as the file says. A process that imports for itself."""
    by.write_text(str(seconds))
    return Process([SHIFTED, by, *process._arguments[2:-2]], process.port)


def ready(process: Process) -> httpx.Response:
    return httpx.get(f"{process.address}/ready", timeout=PATIENCE_S)


def becomes(process: Process, status: int) -> httpx.Response:
    """Its first answer of that status: the parameter service may be too busy for the first comparison."""
    ends = time.monotonic() + PATIENCE_S
    while (answer := ready(process)).status_code != status and time.monotonic() < ends:
        time.sleep(0.5)
    return answer


def frozen(cluster: LocalCluster, name: str) -> int | None:
    """How many of sixty reports all helpers accepted."""
    seen = SystemClock().now() - cluster.document.attribution_window_s - cluster.document.delay.max_s - 3600
    browsers = Population(cluster.document, cluster.sealing_keys(), seen, SystemRandomness())
    cluster.upload(browsers.measure([["spring"] * 60], [[0, 1] * 30]))
    with cluster.client() as client:
        begin = max((each.selection.end for each in client.datasets()), default=0)
        client.select(name, begin, next_second(), Purpose.AGGREGATE)
        return client.send(name).records


def watermark(cluster: LocalCluster) -> int:
    database = sqlite3.connect(cluster.helpers[0].folder / "database" / "helper.sqlite")
    ((mark,),) = database.execute("SELECT watermark FROM ids_mark")
    database.close()
    return int(mark)


def columns(cluster: LocalCluster) -> list[Path]:
    return sorted(path for path in (cluster.helpers[0].folder / "columns").rglob("*") if path.is_file())


def asked(cluster: LocalCluster, number: int) -> None:
    with cluster.client() as client:
        client.query(["bought"], by=["campaign"], noise=5.0 + number, datasets=["monday"])


def test_a_helper_that_started_with_a_wrong_clock_loses_nothing(tmp_path, capfd):
    with local_cluster(tmp_path, SETTINGS, SystemRandomness()) as cluster:
        assert frozen(cluster, "monday") == 60
        process, files = cluster.helpers[0].process, columns(cluster)
        assert files
        process.stop()
        process.start()
        assert (mark := watermark(cluster)) > 0
        for number, seconds in enumerate((int(29.9 * DAY_S), -3000)):
            process.stop()
            with ahead(process, tmp_path / "by", seconds) as wrong:
                answer = becomes(wrong, 503)
            assert (answer.status_code, answer.json().get("type")) == (503, "/problems/clock-disagrees"), (
                seconds
            )
            assert "that of the parameter service" in capfd.readouterr().err
            assert (watermark(cluster), columns(cluster)) == (mark, files)
            process.start()
            assert ready(process).status_code == 200
            assert watermark(cluster) <= SystemClock().now()
            asked(cluster, number)
            mark = watermark(cluster)
        assert frozen(cluster, "tuesday") == 60, "none of them is past its lifetime"


def test_a_helper_that_was_off_for_40_days_deletes_by_itself(tmp_path):
    """Its clock is ahead of the tests', and so is that of the parameter service."""
    with local_cluster(tmp_path, SETTINGS, SystemRandomness()) as cluster:
        assert frozen(cluster, "monday") == 60
        process, service, by = cluster.helpers[0].process, cluster.service, tmp_path / "by"
        process.stop()
        service.stop()
        with ahead(process, by, 40 * DAY_S) as alone:
            assert ready(alone).status_code == 200, "nothing contradicts it"
            assert columns(cluster), "nor does anything confirm it"
            assert watermark(cluster) <= SystemClock().now()
        with ahead(service, by, 40 * DAY_S), ahead(process, by, 40 * DAY_S) as late:
            assert ready(late).status_code == 200
            assert columns(cluster) == []
            assert watermark(cluster) > SystemClock().now() + 39 * DAY_S


@pytest.mark.parametrize("days", [-3, -120, 29, 100])
def test_an_adserver_with_a_wrong_clock_takes_reports_once_it_is_right(tmp_path, days):
    url, pending = f"sqlite:///{tmp_path / 'reports.db'}", MemoryOutbox(sent := made(5))
    with parameter_service(tmp_path) as service:
        right = Process(command(url, tmp_path, service)[1:])
        with ahead(right, by := tmp_path / "by", days * DAY_S) as process:
            assert answered(process, sent) == [Verdict.LATER] * 5
            with httpx.Client() as client:
                assert uploader(process.address, client, pending).send_due() == Progress()
            assert (len(pending.waiting), pending.refusals) == (5, {})
            assert ready(process).json()["type"] == "/problems/clock-disagrees"
            by.write_text("0")
            end = time.monotonic() + PATIENCE_S
            with uploading(process.address, pending):
                while pending.waiting and time.monotonic() < end:
                    time.sleep(0.05)
    assert sorted(stored(url)) == sorted(sent)
    assert pending.refusals == {}


def answered(process: Process, sent: list[bytes]) -> list[Verdict]:
    """The ad server's answers."""
    body, kind = uploads.encode_batch(sent), {"content-type": uploads.CONTENT_TYPE}
    answer = httpx.post(f"{process.address}/v2/reports", content=body, headers=kind, timeout=PATIENCE_S)
    return [each.outcome for each in uploads.decode_answers(answer.content, len(sent))]
