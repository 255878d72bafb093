"""Sizes and numbers of messages, metrics and logs tell nothing of what people did.

The same people go through running services, from upload to answer, with different secrets. Whoever watches
every line, reads every log and every page of metrics sees the same, times aside.
"""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness
from maskedlark.simulate.cluster import LocalCluster
from tests.integration.attacker import Attacker
from tests.integration.waiting import next_second
from tests.statistical import sides
from tests.statistical.sides import HIGH, LOW, Message, Secrets, alike, drawn, measured, question, trained

TIMES = (
    "_seconds_bucket",
    "_seconds_sum",
    "_created",
    "_disk_free_bytes",
    "_disk_total_bytes",
    "_keys_end_seconds",
    "_last_freeze_seconds",
)
MACHINE = ("process_", "python_")
"""Of the process: memory, threads, descriptors."""


class Seen(NamedTuple):
    """All that can be seen of one way from upload to answer, times aside."""

    messages: Counter[object]
    metrics: tuple[dict[str, float], ...]
    """Of the ad server and of the helpers; of the parameter service documents are asked for by age."""
    logs: Counter[str]


def all_the_way(folder: Path, secrets: Secrets) -> Seen:
    """Every report's size and every message, from upload to answer, with errors on the way."""
    log = folder / "log"
    with ExitStack() as stack:
        with sides.writing_to(log):
            made = stack.enter_context(sides.staged(folder, log_level="DEBUG", serving="metrics_port = 0"))
        shown = sides.pages(made)
        messages = walk(made, secrets)
        metrics = tuple(timeless(sides.samples(page)) for page in shown[1:])
    return Seen(messages, metrics, Counter(map(str, map(line, sides.lines(log)))))


def walk(made: LocalCluster, secrets: Secrets) -> Counter[object]:
    with sides.listening(made) as heard:
        # The same draws for all: ids, fakes, their order and their moments are the same people's.
        rng = FixedRandomness(b"same people")
        reports = {"aggregate": measured(made, secrets, rng), "train": trained(made, secrets, rng)}
        for some in reports.values():
            made.upload([some[at : at + 100] for at in range(0, len(some), 100)])
        made.upload([reports["train"][:3]])  # once more
        end = next_second()
        with made.client() as client:
            for purpose in Purpose:
                client.select(purpose.value, 0, end, purpose)
            client.send("train")
            frozen = client.send("aggregate")
            values, by = ["count", "bought", "euros"], [["campaign"], ["place"], []]
            client.explain(values, by, noise=20.0)
            client.query(values, by, noise=20.0)
            client.query(["euros"], by=["campaign"], where={"place": 2}, noise=20.0)
            with pytest.raises(MaskedLarkError):
                client.query(["euros"], noise=0.9)
        assert frozen.digest is not None
        with pytest.raises(MaskedLarkError):
            Attacker(made).ask(question(frozen.digest.hex(), "loud"))
        for helper in made.helpers:
            for path in (f"/v2/origins/{made.origin}/receipts", "/health", "/ready"):
                assert httpx.get(f"{helper.process.address}{path}").is_success
    sizes: Counter[object] = Counter((name, len(each)) for name, some in reports.items() for each in some)
    assert len(sizes) == len(reports), "one size a purpose"
    return sizes + Counter(each.message for each in heard)


def timeless(samples: dict[str, float]) -> dict[str, float]:
    return {
        name: value
        for name, value in samples.items()
        if not name.startswith(MACHINE) and not name.partition(" ")[0].endswith(TIMES)
    }


def line(found: dict[str, object]) -> dict[str, object]:
    """A line without times and random ids. Of the parameter service's, by age, only that there are some."""
    if found["service"] == "parameters":
        return {}
    return {name: value for name, value in found.items() if name not in ("time", "ms", "request_id")}


@pytest.fixture(scope="module")
def nothing_done(tmp_path_factory):
    return all_the_way(tmp_path_factory.mktemp("nothing"), alike(0, 0, 0))


@pytest.mark.long
@pytest.mark.parametrize(
    "secrets",
    [
        pytest.param(alike(1, HIGH, 1), id="the most"),
        pytest.param(alike(0, LOW, 0), id="the least"),
        pytest.param(drawn(), id="drawn"),
    ],
)
def test_all_that_is_seen_is_the_same_whatever_people_did(secrets, nothing_done, tmp_path):
    found = all_the_way(tmp_path, secrets)
    assert found.messages == nothing_done.messages
    for here, there in zip(found.metrics, nothing_done.metrics, strict=True):
        assert sorted(here.items() ^ there.items()) == []
    found.logs["{}"] = nothing_done.logs["{}"] = 0
    assert +found.logs == +nothing_done.logs


@pytest.mark.long
def test_every_kind_of_message_is_listened_to(nothing_done):
    paths = {each.path for each in nothing_done.messages if isinstance(each, Message)}
    for kind in (
        "/v2/reports",
        "/chunks/0",
        "/freeze",
        "/explain",
        "/releases",
        "/receipts",
        "/health",
        "/ready",
    ):
        assert any(path.endswith(kind) for path in paths), kind
    assert {"/v2/seeds/{digest}", "/v2/seeds/{digest}/message"} <= paths


@pytest.mark.long
def test_metrics_and_logs_are_of_the_whole_way(nothing_done):
    uploads, *helpers = nothing_done.metrics
    assert uploads["maskedlark_reports_total {'outcome': 'duplicate', 'reason': ''}"] == 3
    for each in helpers:
        assert each["maskedlark_releases_total {'function': 'sums', 'outcome': 'answered'}"] == 2
        assert each["maskedlark_datasets {'state': 'frozen'}"] == 2
        assert each["maskedlark_reports_total {'outcome': 'taken', 'reason': ''}"] > 2000
    for kind in (
        "/v2/reports",
        "/chunks/{number}",
        "/freeze",
        "/explain",
        "/releases",
        "an unexpected ValueError",
    ):
        assert any(kind in each for each in nothing_done.logs), kind
