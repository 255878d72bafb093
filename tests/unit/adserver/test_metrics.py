import pytest

from maskedlark.adserver import app as app_module
from maskedlark.adserver import create_app
from maskedlark.adserver.dataset_store import Datasets, DatasetState
from maskedlark.adserver.report_store import Selection
from maskedlark.core.purpose import Purpose
from maskedlark.wire.uploads import encode_batch
from tests.unit.adserver.cases import client_of, post, upload
from tests.unit.adserver.stored import DIGEST, ORIGIN, arrivals, clock, data, documents, opened
from tests.unit.web.observing import of


@pytest.fixture
def app(tmp_path):
    database, table = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    yield create_app(ORIGIN, table, clock(), documents)
    database.close()


def test_reports_are_counted_by_outcome(app):
    client, sent = client_of(app), data(5)
    foreign = arrivals(1, b"f", origin="other.example")[0].data
    upload(client, sent)
    upload(client, [*sent[:2], foreign, b"\x02"])
    assert of(app, "maskedlark_reports_total") == {
        ("stored", ""): 5,
        ("duplicate", ""): 2,
        ("refused", "WrongOrigin"): 1,
        ("refused", "Truncated"): 1,
    }
    assert of(app, "maskedlark_upload_reports_count") == {(): 2}
    assert of(app, "maskedlark_upload_reports_sum") == {(): 9}


def test_a_batch_that_is_refused_whole_is_a_problem_and_no_report(app):
    assert post(client_of(app), encode_batch(data(3)) + b"\x00").status_code == 400
    assert of(app, "maskedlark_reports_total") == {}
    assert of(app, "maskedlark_problems_total") == {("truncated",): 1}


def test_readiness_is_shown(app):
    assert of(app, "maskedlark_ready") == {(): 1}


def test_the_disk_is_shown(app):
    # Not compared: they are of two moments, and other processes write to the same disk.
    for name in ("free", "total"):
        assert of(app, f"maskedlark_disk_{name}_bytes")[()] > 0


@pytest.fixture
def stored(database_url):
    """Reports received at seconds 10, 20 and 30, in an app and its table of datasets."""
    at = clock()
    database, table = opened(database_url, at)
    for at.seconds, count in ((10, 3), (20, 4), (30, 5)):
        table.store(arrivals(count, bytes([at.seconds])))
    yield create_app(ORIGIN, table, at, documents), Datasets(database)
    database.close()


def unselected(app):
    return of(app, "maskedlark_unselected_reports")[()]


def test_reports_are_unselected_until_a_dataset_holds_them(stored):
    app, datasets = stored
    assert unselected(app) == 12
    datasets.add("middle", Selection(Purpose.TRAIN, DIGEST, 20, 30), [])
    assert unselected(app) == 3 + 5
    datasets.add("last", Selection(Purpose.TRAIN, DIGEST, 30, 40), [])
    datasets.add("other purpose", Selection(Purpose.AGGREGATE, DIGEST, 0, 40), [])
    datasets.add("other document", Selection(Purpose.TRAIN, bytes(32), 0, 40), [])
    assert unselected(app) == 3
    datasets.mark("last", DatasetState.LOST)
    assert unselected(app) == 3
    datasets.mark("middle", DatasetState.ABORTED)
    assert unselected(app) == 3 + 4


def test_unselected_reports_are_counted_up_to_a_limit(stored, monkeypatch):
    app, datasets = stored
    datasets.add("middle", Selection(Purpose.TRAIN, DIGEST, 20, 30), [])
    for limit in (2, 3, 7, 8, 9):
        monkeypatch.setattr(app_module, "COUNTED", limit)
        assert unselected(app) == min(limit, 8)


def test_datasets_are_shown_by_where_they_stand(stored):
    app, datasets = stored
    none = {(each.value,): 0 for each in DatasetState}
    assert of(app, "maskedlark_datasets") == none
    for start in (10, 20, 30):
        datasets.add(str(start), Selection(Purpose.TRAIN, DIGEST, start, start + 1), [])
    datasets.freeze("20", bytes(32), 4)
    assert of(app, "maskedlark_datasets") == none | {("selected",): 2, ("frozen",): 1}


def test_a_servers_disk_is_not_shown(postgresql_url):
    database, table = opened(postgresql_url)
    app = create_app(ORIGIN, table, clock(), documents)
    assert of(app, "maskedlark_disk_free_bytes") == of(app, "maskedlark_disk_total_bytes") == {}
    database.close()
