import shutil
from contextlib import suppress

import numpy as np
import pytest

from maskedlark.errors import MaskedLarkError
from maskedlark.web import health
from maskedlark.wire import datasets
from maskedlark.wire.datasets import CHUNK_TYPE, JSON_TYPE
from tests.unit.helper.world import begin, opened, question, world
from tests.unit.web.observing import of, samples


@pytest.fixture
def helper(tmp_path):
    with world(tmp_path) as made:
        yield made


def refused(helper, body):
    with pytest.raises(MaskedLarkError):
        helper.remote().post("/v2/releases", body, JSON_TYPE)


def test_parts_are_counted_by_what_became_of_them(helper):
    document = helper.publish(fake_rate=0.0)
    remote, parts = helper.remote(), helper.reports(document, 60)
    begin(remote, document)
    body = datasets.encode_chunk(np.concatenate([parts, parts[:1], np.zeros_like(parts[:1])]))
    remote.post("/v2/datasets/monday/chunks/0", body, CHUNK_TYPE, opened())
    assert of(helper.app, "maskedlark_reports_total") == {
        ("taken", ""): 60, ("refused", "Replayed"): 1, ("refused", "WrongHelper"): 1,
    }  # fmt: skip
    assert of(helper.app, "maskedlark_ingest_seconds_count") == {(): 1}
    remote.post("/v2/datasets/monday/chunks/0", body, CHUNK_TYPE, opened())
    assert of(helper.app, "maskedlark_reports_total")["taken", ""] == 120


def test_questions_are_counted_by_function_and_outcome(helper):
    digest = helper.frozen(helper.publish(fake_rate=0.0)).digest
    helper.remote().post("/v2/releases", question(digest), JSON_TYPE)
    refused(helper, question(digest, number=2, noise=0.1))
    for number in range(10, 20):  # Each costs more than a tenth of the budget.
        with suppress(MaskedLarkError):
            helper.remote().post("/v2/releases", question(digest, number=number, noise=1.1), JSON_TYPE)
    refused(helper, question("00" * 32, number=4))
    refused(helper, question(digest, number=5).replace(b'"sums"', b'"a stranger wrote this"'))
    refused(helper, b"{")
    refused(helper, b"," * 100_000)
    found = of(helper.app, "maskedlark_releases_total")
    assert 1 < found["sums", "answered"] < 11
    assert found["sums", "answered"] + found["sums", "budget-exhausted"] == 11
    assert found["sums", "noise-too-small"] == 1
    assert found["sums", "unknown-dataset"] == 1
    assert found["unknown", "unknown-function"] == 1
    assert {function for function, _ in found} == {"sums", "unknown"}
    assert sum(found.values()) == 16


def test_datasets_lines_keys_and_the_disk_are_shown(helper):
    document = helper.publish(fake_rate=0.0)
    helper.frozen(document)
    begin(helper.remote(), document, "tuesday")
    assert of(helper.app, "maskedlark_datasets") == {("open",): 1, ("frozen",): 1, ("expired",): 0}
    assert of(helper.app, "maskedlark_ledger_lines") == {(): 1}
    end = 60 * 86_400
    assert of(helper.app, "maskedlark_keys_end_seconds") == {("receipts",): end, ("reports",): end}
    helper.clock.seconds += 61 * 86_400
    assert of(helper.app, "maskedlark_keys_end_seconds")["reports",] == -86_400
    free, total = (of(helper.app, f"maskedlark_disk_{each}_bytes")[()] for each in ("free", "total"))
    assert 0 < free < total


def test_the_time_since_the_last_freeze_is_shown(helper):
    assert of(helper.app, "maskedlark_last_freeze_seconds") == {}
    helper.frozen(helper.publish(fake_rate=0.0))
    helper.clock.seconds += 70
    assert of(helper.app, "maskedlark_last_freeze_seconds") == {(): 70}


def test_readiness_is_shown_as_ready_says_it(helper, monkeypatch):
    monkeypatch.setattr(health, "EVERY_S", 0)
    assert of(helper.app, "maskedlark_ready") == {(): 1}
    helper.clock.seconds += 400 * 86_400
    assert of(helper.app, "maskedlark_ready") == {(): 0}


def test_only_origins_that_are_pinned_are_labels(helper):
    document = helper.publish(fake_rate=0.0)
    begin(helper.remote(), document)
    with pytest.raises(MaskedLarkError):
        begin(helper.remote(origin="stranger.example"), document)
    assert of(helper.app, "maskedlark_signed_requests_total") == {("ads.example",): 1}
    assert "stranger" not in str(samples(helper.app))


def test_the_page_comes_while_keys_are_away(helper):
    shutil.rmtree(helper.service.config.keys_folder)
    assert of(helper.app, "maskedlark_keys_end_seconds") == {}
    assert of(helper.app, "maskedlark_ready") == {(): 0}
    assert of(helper.app, "maskedlark_ledger_lines") == {(): 0}


def test_every_route_is_a_declared_path(helper):
    document = helper.publish(fake_rate=0.0)
    digest = helper.frozen(document).digest
    for path in ("/v2/releases", "/v2/explain"):
        helper.remote().post(path, question(digest), JSON_TYPE)
    begin(helper.remote(), document, "tuesday")
    helper.remote().get("/v2/datasets/tuesday")
    helper.remote().delete("/v2/datasets/tuesday", opened("tuesday"))
    for path in ("/health", "/ready", "/v2/keys", "/v2/origins/ads.example/receipts", "/nothing"):
        helper.http().get(path)
    helper.http().get(f"/v2/records/{digest}")
    for path in (f"seeds/{digest}", f"seeds/{digest}/message", "sessions"):
        helper.http().post(f"/v2/{path}")
    for path in (f"check-keys/{digest}", f"check-keys/{digest}/message", "datasets/monday/chunks/0/checks"):
        helper.http().post(f"/v2/{path}", params=opened())
    for path in ("steps/0", "close"):
        helper.http().post(f"/v2/sessions/{'00' * 16}/{path}")
    declared = helper.app.openapi()["paths"].keys()
    routes = {route for (route,) in of(helper.app, "maskedlark_request_body_bytes_total")}
    assert routes - {"other"} == declared
