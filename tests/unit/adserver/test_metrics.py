import pytest

from maskedlark.adserver import create_app
from maskedlark.wire.uploads import encode_batch
from tests.unit.adserver.cases import client_of, post, upload
from tests.unit.adserver.stored import ORIGIN, arrivals, clock, data, documents, opened
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
