"""One request is found in the logs of all parties by its id. Real processes, over HTTP."""

import json

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.randomness import SystemRandomness
from tests.statistical import sides


@pytest.mark.long
def test_a_query_has_one_id_in_the_logs_of_both_helpers(tmp_path):
    log = tmp_path / "log"
    with sides.writing_to(log), sides.staged(tmp_path, log_level="INFO") as made, made.client() as client:
        made.upload([sides.measured(made, sides.drawn(), SystemRandomness())])
        made.freeze(client, {Purpose.AGGREGATE: "monday"})
        for noise in (1e5, 1e6):
            client.query(["bought"], "campaign", noise=noise)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [each for each in lines if each["message"] == "request"]
    ids = [each["request_id"] for each in requests if each["route"] == "/v2/releases"]
    assert sorted(map(ids.count, set(ids))) == [2, 2]
    assert {each["status"] for each in requests if each["request_id"] in ids} == {200}
    # Nothing links reports: each upload has an id of its own.
    uploads = [each["request_id"] for each in requests if each["service"] == "adserver"]
    assert len(uploads) == len(set(uploads)) > 0
