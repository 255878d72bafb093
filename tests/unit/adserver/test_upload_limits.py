"""How much one address, and all together, may upload; and how much of the disk reports may use."""

import asyncio
import contextlib
import os

import httpx
import pytest

from maskedlark.adserver import Limits, create_app
from maskedlark.adserver.upload_limits import ADDRESSES, UploadLimits, source_of
from maskedlark.web.errors import DiskShareUsed, TooManyReports
from maskedlark.wire.uploads import CONTENT_TYPE, decode_answers, encode_batch
from tests.unit.adserver.stored import ORIGIN, clock, data, documents, opened
from tests.unit.web.timing import Time

LIMITS = Limits(
    address_reports_per_s=10, address_bytes_per_s=1000, reports_per_s=40, bytes_per_s=4000, burst_s=3
)
ONE, OTHER, THIRD, FOURTH = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"


class Disk:
    """Reports that use so much of it."""

    def __init__(self):
        self.use: tuple[int, int, int] | None = None

    def disk(self):
        return self.use


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def limits(disk, time):
    return UploadLimits(LIMITS, disk, time)


def send(limits, host=ONE, reports=0, size=0, announced=None):
    """The seconds after which to come again; 0 if it was taken."""
    try:
        with limits.upload(host, size if announced is None else announced) as taken:
            taken.update(reports=reports, bytes=size)
    except TooManyReports as error:
        return error.retry_after_s
    return 0


def test_one_address_gets_its_rate_after_a_burst_and_others_theirs(limits, time):
    assert [send(limits, reports=10) for _ in range(4)] == [0, 0, 0, 0]
    assert send(limits, reports=10) == 1
    assert send(limits, OTHER, reports=10) == 0
    taken = 0
    for _ in range(100):
        time.now += 0.5
        taken += send(limits, reports=10) == 0
    assert taken in (50, 51)


def test_bytes_are_limited_as_reports_are(limits):
    assert [send(limits, reports=1, size=1000) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_an_upload_above_the_rate_is_taken_once_and_waited_for(limits, time):
    assert send(limits, reports=100) == 0
    assert send(limits, reports=1) == 7
    time.now += 7
    assert send(limits, reports=1) == 0


def test_all_together_have_a_rate_too_and_who_has_sent_nothing_waits_with_the_others(limits, time):
    for _ in range(3):
        assert [send(limits, host, reports=10) for host in (ONE, OTHER, THIRD, FOURTH)] == [0] * 4
    assert send(limits, ONE, reports=10) == 0
    assert send(limits, "192.0.2.5", reports=1) == 1
    time.now += 1
    assert send(limits, "192.0.2.5", reports=1) == 0


def test_what_is_announced_counts_while_it_comes_and_what_came_afterwards(limits):
    with limits.upload(ONE, 3500):
        assert send(limits, reports=1) == 1
        assert send(limits, OTHER, reports=1) == 0
    # Nothing came: neither this address nor all together have used anything.
    assert [send(limits, reports=10) for _ in range(3)] == [0, 0, 0]


def test_a_table_of_addresses_stays_bounded_and_keeps_those_that_upload(limits):
    for place in range(2 * ADDRESSES):
        send(limits, f"10.{place >> 16}.{place >> 8 & 255}.{place & 255}", reports=0, announced=1)
        if place % 1000 == 0:
            send(limits, ONE, reports=40 if place == 0 else 0)
    assert len(limits._by_source) == ADDRESSES
    assert send(limits, ONE) == 1


def test_addresses_are_counted_as_networks_that_one_sender_has():
    assert source_of("2001:db8::1") == source_of("2001:db8::ffff:1") != source_of("2001:db8:0:1::1")
    assert source_of("::ffff:192.0.2.1") == source_of("192.0.2.1") != source_of("192.0.2.2")
    assert source_of(None) == source_of("") == source_of("unknown") == source_of("192.0.2.1:80") == b""


def test_the_disk_is_looked_at_once_a_second(limits, disk, time):
    for use, refused in ((None, False), ((100, 80, 20), False), ((100, 81, 19), True)):
        disk.use = use
        time.now += 1
        with pytest.raises(DiskShareUsed) if refused else contextlib.nullcontext():
            asyncio.run(limits.check_disk())
    disk.use = 100, 1, 99
    with pytest.raises(DiskShareUsed):
        asyncio.run(limits.check_disk())
    time.now += 1
    asyncio.run(limits.check_disk())


@pytest.fixture
def reports(tmp_path):
    database, table = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    yield table
    database.close()


def test_a_file_is_as_large_as_what_is_in_it(reports, tmp_path):
    total, before, free = reports.database.disk()
    room = os.statvfs(tmp_path)
    assert 0 < before < 1 << 20
    assert before + free == total <= room.f_blocks * room.f_frsize
    database = reports.database
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE filler (data BLOB)")
        connection.exec_driver_sql("INSERT INTO filler VALUES (zeroblob(4000000))")
    assert reports.database.disk()[1] > before + 4_000_000
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM filler")
    assert reports.database.disk()[1] < before + 100_000


def ask(app, host, body=b"", content=None):
    async def asked():
        transport = httpx.ASGITransport(app, client=(host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://ads.example") as client:
            headers = {"content-type": CONTENT_TYPE}
            return await client.post("/v2/reports", content=content or body, headers=headers)

    return asyncio.run(asked())


def test_who_sends_too_much_hears_when_to_come_again_and_nothing_of_it_is_read(reports):
    limits = Limits(address_reports_per_s=1, burst_s=10)
    app = create_app(ORIGIN, reports, clock(), documents, limits)
    sent = data(40)
    assert ask(app, ONE, encode_batch(sent[:20])).status_code == 200

    read = []

    async def unread():
        read.append(True)
        yield b""

    answer = ask(app, ONE, content=unread())
    assert answer.status_code == 429
    assert not read
    assert 5 <= int(answer.headers["retry-after"]) <= 10
    assert answer.headers["connection"] == "close"
    assert answer.json()["type"] == "/problems/too-many-reports"
    assert ONE not in answer.text
    found = ask(app, OTHER, encode_batch(sent[20:]))
    assert {each.outcome.value for each in decode_answers(found.content, 20)} == {"stored"}
    assert reports.count() == 40


def test_a_body_of_unknown_size_counts_as_the_largest_while_it_comes(reports):
    app = create_app(ORIGIN, reports, clock(), documents, Limits(address_bytes_per_s=1000, burst_s=10))
    meanwhile = []

    async def slowly():
        yield b""
        transport = httpx.ASGITransport(app, client=(ONE, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://ads.example") as client:
            meanwhile.append(await client.post("/v2/reports", headers={"content-type": CONTENT_TYPE}))
        yield encode_batch(data(1))

    assert ask(app, ONE, content=slowly()).status_code == 200
    assert meanwhile[0].status_code == 429
    assert ask(app, ONE, encode_batch(data(1))).status_code == 200


def test_reports_beyond_their_share_of_the_disk_are_to_come_again(reports):
    app = create_app(ORIGIN, reports, clock(), documents, Limits(disk_share=1e-12))
    answer = ask(app, ONE, encode_batch(data(1)))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "300")
    assert answer.json()["type"] == "/problems/disk-share-used"
    assert reports.count() == 0
