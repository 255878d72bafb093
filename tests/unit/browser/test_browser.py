import threading
from collections import Counter
from typing import Any

import pytest

from maskedlark.browser import Kind, Outbox
from maskedlark.browser import browser as module
from maskedlark.browser.browser import LimitReached
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Forked, NotDeclared, WrongLength
from maskedlark.parameters.policy import BudgetOverCeiling, UntrustedHelper
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import report
from tests.unit.browser.cases import DAY, START, Set, secrets
from tests.unit.parameters.cases import make

QUIET: dict[str, Any] = {"fake_rate": 0.0}


def by_purpose(reports):
    found: dict[Purpose, list[bytes]] = {purpose: [] for purpose in Purpose}
    for data in reports:
        found[report.decode_prefix(data).purpose].append(data)
    return found


def outcome(scene):
    """Sums of a quiet scene: count, purchase, visit over all its sources."""
    measured = by_purpose(scene.all_reports())[Purpose.AGGREGATE]
    return Counter(
        (payload.keys[1], *numbers[1:])
        for payload, numbers in (secrets(data, scene.document) for data in measured)
    )


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_a_source_without_conversion_reports_zero_and_label_0(checks):
    scene = Set(**QUIET, checks=checks)
    scene.see(features={"clicks": bytes([1, 2, 3, 4]), "basket": bytes([5, 6])})
    found = by_purpose(scene.all_reports())
    [measured] = found[Purpose.AGGREGATE]
    payload, numbers = secrets(measured, scene.document)
    assert (payload.model, payload.keys, numbers) == (None, ("spring", 7), [1, 0, 0])
    assert len(found[Purpose.TRAIN]) == 2
    shown = {}
    for data in found[Purpose.TRAIN]:
        payload, numbers = secrets(data, scene.document)
        shown[payload.model] = payload.columns, dict(zip(payload.candidates[0], numbers, strict=True))
    assert shown["clicks"] == (bytes([1, 2, 3, 4]), {0: 1, 1: 0})
    assert shown["basket"][1][0] == 1
    assert sum(shown["basket"][1].values()) == 1


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_values_of_several_types_merge_and_one_type_adds_up_to_its_bound(checks):
    scene = Set(**QUIET, checks=checks)
    scene.see()
    scene.convert(visit=1)
    scene.convert(purchase=49_000)
    scene.convert(purchase=900)
    scene.convert(visit=1)
    assert outcome(scene) == {(7, 49_900, 1): 1}
    scene.see()
    scene.convert(purchase=50_000)
    scene.convert(purchase=50_000)
    assert (7, 50_000, 0) in outcome(scene)


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_labels_come_from_what_was_attributed(checks):
    scene = Set(**QUIET, checks=checks)
    scene.see(features={"clicks": bytes(4), "basket": bytes(2)})
    scene.convert(purchase=40)
    found = by_purpose(scene.all_reports())[Purpose.TRAIN]
    labels = set()
    for data in found:
        payload, numbers = secrets(data, scene.document)
        labels.add((payload.model, payload.candidates[0][numbers.index(1)]))
    assert labels == {("clicks", 1), ("basket", 40)}


def test_the_last_touch_counts_and_clicks_come_before_views():
    scene = Set(**QUIET)
    for place, kind in enumerate([Kind.CLICK, Kind.CLICK, Kind.VIEW]):
        scene.see(kind, place=place)
        scene.clock.seconds += 10
    scene.convert(purchase=5)
    assert outcome(scene) == {(0, 0, 0): 1, (1, 5, 0): 1, (2, 0, 0): 1}


def test_expired_sources_and_other_destinations_do_not_count():
    scene = Set(**QUIET)
    scene.see(place=1, expiry_s=100)
    scene.see(place=2, destination="other.example")
    scene.clock.seconds += 100
    scene.convert(purchase=5)
    assert outcome(scene) == {(1, 0, 0): 1, (2, 0, 0): 1}


def test_nothing_is_reported_before_the_window_has_ended_and_everything_after_the_longest_delay():
    scene = Set(**QUIET)
    scene.see()
    scene.convert(purchase=5)
    scene.clock.seconds = START + 7 * DAY - 1
    assert scene.browser.report_due() == 0
    scene.clock.seconds = START + 8 * DAY
    assert scene.browser.report_due() == 2
    assert scene.browser.report_due() == 0
    assert scene.store.count_sources("ads.example") == 0


def test_a_clock_that_jumps_back_changes_nothing_once_a_report_is_made():
    scene = Set(**QUIET)
    scene.see()
    [first, _] = sorted(scene.store.due(1 << 40), key=lambda scheduled: scheduled.due)
    scene.clock.seconds = first.due
    assert scene.browser.report_due() >= 1
    scene.clock.seconds = START + 5
    scene.convert(purchase=5, visit=1)
    found = by_purpose(scene.all_reports())
    assert secrets(found[Purpose.AGGREGATE][0], scene.document)[1] == [1, 0, 0]
    assert secrets(found[Purpose.TRAIN][0], scene.document)[1] == [1, 0]


def test_a_report_carries_the_document_that_was_in_force_when_the_ad_was_seen():
    scene = Set(**QUIET)
    old = scene.document
    scene.see()
    scene.parameters.documents.append(make(version=2, previous=old.digest.hex(), k=60, **QUIET))
    scene.convert(purchase=5)
    digests = {report.decode_prefix(data).parameters for data in scene.all_reports()}
    assert digests == {old.digest}


def test_fakes_are_of_decoy_rows_at_the_declared_rate_and_count_for_nothing():
    scene = Set(fake_rate=1.0)
    scene.see()
    found = by_purpose(scene.all_reports())
    assert {purpose: len(each) for purpose, each in found.items()} == {Purpose.AGGREGATE: 2, Purpose.TRAIN: 2}
    assert len({len(data) for data in found[Purpose.TRAIN]}) == 1
    assert sorted(secrets(data, scene.document)[1] for data in found[Purpose.AGGREGATE]) == [
        [0, 0, 0],
        [1, 0, 0],
    ]


def test_local_noise_is_drawn_once_a_source_and_differs_between_sources():
    models = [
        {
            "tag": "clicks",
            "columns": [{"kind": "bytes", "count": 4}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 1.0,
            "feature_noise": {"epsilon": 1.0, "sensitivity": 1},
            "randomised_response": {"epsilon": 1.0},
        }
    ]
    scene = Set(rng=FixedRandomness(b"noise"), models=models, decoys=[], fake_rate=0.0)
    for _ in range(30):
        scene.see(features={"clicks": bytes([100, 100, 100, 100])})
    found = [secrets(data, scene.document) for data in by_purpose(scene.all_reports())[Purpose.TRAIN]]
    assert len({payload.columns for payload, _ in found}) > 25
    flipped = sum(numbers[1] for _, numbers in found)
    assert 1 <= flipped <= 20  # 30 coins of 0.27


@pytest.mark.parametrize(
    ("act", "error", "reason"),
    [
        (lambda s: s.see(features={"nothing": b""}), NotDeclared, "declares clicks, basket"),
        (lambda s: s.see(features={"clicks": b"123"}), NotDeclared, "columns of 4 bytes"),
        (lambda s: s.see(expiry_s=8 * DAY), NotDeclared, "at most 604800 whole seconds"),
        (lambda s: s.see(expiry_s=0), NotDeclared, "at most"),
        (lambda s: s.see(place="x" * 65), WrongLength, "64 bytes"),
        (lambda s: s.convert(purchase=2**53), NotDeclared, "53 bits"),
        (lambda s: s.convert(**{"x" * 65: 1}), NotDeclared, "64 bytes"),
        (lambda s: s.convert("x" * 254, visit=1), NotDeclared, "253 bytes"),
        (lambda s: s.see(destination=""), NotDeclared, "name of a site"),
        (lambda s: s.see(expiry_s=1.5), NotDeclared, "whole seconds"),
        (lambda s: s.convert(purchase=1.5), NotDeclared, "whole number"),
        (lambda s: s.convert(visit=True), NotDeclared, "whole number"),
    ],
)
def test_what_was_not_declared_is_refused_and_nothing_changes(act, error, reason):
    scene = Set(**QUIET)
    with pytest.raises(error, match=reason):
        act(scene)
    assert scene.all_reports() == []


def test_keys_that_are_not_the_declared_ones_are_refused():
    scene = Set(**QUIET)
    with pytest.raises(NotDeclared, match="campaign, place"):
        scene.browser.register_source("ads.example", Kind.VIEW, "shop.example", {"campaign": 1}, {})


def test_a_browser_keeps_so_many_sources_of_one_origin(monkeypatch):
    monkeypatch.setattr(module, "MAX_SOURCES", 3)
    scene = Set(**QUIET)
    for _ in range(3):
        scene.see()
    with pytest.raises(LimitReached, match="wait until"):
        scene.see()


def test_a_document_outside_the_browser_s_policy_is_refused():
    with pytest.raises(BudgetOverCeiling):
        Set(budget={"epsilon": 11.0, "delta": 1e-6}).see()
    helpers = [{"name": f"helper-{i}", "identity": f"{i + 7:064x}"} for i in range(2)]
    with pytest.raises(UntrustedHelper):
        Set(helpers=helpers).see()


def test_a_trigger_asks_nobody_and_does_the_same_whether_or_not_there_is_a_source():
    """Neither a page, by an error or the work done, nor the service, by a request, learns of sources."""
    scene, statements = Set(**QUIET), []
    scene.see()

    scene.browser._parameters = object()  # type: ignore[assignment]
    scene.store._connection.set_trace_callback(
        lambda statement: statements.append(statement.split("VALUES")[0])
    )
    work = []
    for destination in ("shop.example", "nowhere.example"):
        scene.convert(destination, visit=1, unheard_of=10**9)
        work.append(tuple(statements))
        statements.clear()
    assert work[0] == work[1] != ()


def test_values_are_cut_to_their_bounds_and_unknown_ones_left_out():
    scene = Set(**QUIET)
    scene.see()
    scene.convert(purchase=-5, unheard_of=7)
    scene.convert(purchase=60_000, visit=9)
    assert outcome(scene) == {(7, 50_000, 1): 1}


def test_a_conversion_without_values_is_one_all_the_same():
    scene = Set(**QUIET)
    scene.see()
    scene.convert()
    found = by_purpose(scene.all_reports())
    assert secrets(found[Purpose.TRAIN][0], scene.document)[1] == [0, 1]
    assert secrets(found[Purpose.AGGREGATE][0], scene.document)[1] == [1, 0, 0]


def test_a_conversion_does_not_count_for_an_ad_that_is_seen_later_in_the_same_second():
    scene = Set(**QUIET)
    scene.see(place=1)
    scene.convert(purchase=5)
    scene.see(place=2)
    assert outcome(scene) == {(1, 5, 0): 1, (2, 0, 0): 1}


def test_a_report_that_cannot_be_made_holds_up_no_other_and_is_made_later(monkeypatch):
    scene = Set(**QUIET)
    scene.parameters.documents.append(make(origin="good.example", **QUIET))
    scene.see()
    keys: dict[str, str | int] = {"campaign": "spring", "place": 7}
    scene.browser.register_source("good.example", Kind.VIEW, "shop.example", keys, {})
    scene.clock.seconds += 60 * DAY
    bad, by_digest = scene.document.digest, scene.parameters.by_digest

    def away(digest):
        if digest == bad:
            raise Forked("two documents for one version")
        return by_digest(digest)

    monkeypatch.setattr(scene.parameters, "by_digest", away)
    assert scene.browser.report_due() == 1
    monkeypatch.setattr(scene.parameters, "by_digest", by_digest)
    assert scene.browser.report_due() == 2


def test_two_threads_that_report_make_every_report_once(tmp_path):
    scene = Set(tmp_path / "browser.sqlite", **QUIET)
    for number in range(20):
        scene.see(place=number)
    scene.clock.seconds += 60 * DAY
    made: list[int] = []
    threads = [threading.Thread(target=lambda: made.append(scene.browser.report_due())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == len(Outbox(scene.store, "ads.example").batch(1000)) == 40


def test_a_source_that_yields_no_report_is_refused():
    model = {
        "tag": "clicks",
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    }
    scene = Set(values=[], keys=[], models=[model], decoys=[], fake_rate=0.0)
    with pytest.raises(NotDeclared, match="yields no report"):
        scene.browser.register_source("ads.example", Kind.VIEW, "shop.example", {}, {})
    assert scene.store.count_sources("ads.example") == 0


def test_the_store_is_readable_by_its_user_alone(tmp_path):
    Set(tmp_path / "browser.sqlite", **QUIET)
    assert (tmp_path / "browser.sqlite").stat().st_mode & 0o077 == 0


def test_a_restart_loses_nothing_and_doubles_nothing(tmp_path):
    scene = Set(tmp_path / "browser.sqlite", **QUIET)
    scene.see(place=3)
    scene.restart()
    scene.convert(purchase=5)
    scene.restart()
    scene.clock.seconds += 60 * DAY
    scene.browser.report_due()
    before = sorted(Outbox(scene.store, "ads.example").batch(10))
    scene.restart()
    assert scene.browser.report_due() == 0
    assert sorted(Outbox(scene.store, "ads.example").batch(10)) == before  # a resend is byte-identical
    assert outcome(scene) == {(3, 5, 0): 1}


def test_a_crash_while_a_report_is_stored_leaves_it_to_be_made_again(tmp_path, monkeypatch):
    scene = Set(tmp_path / "browser.sqlite", **QUIET)
    scene.see(place=3)
    scene.clock.seconds += 60 * DAY
    made = scene.store.made

    def crash(scheduled, data):
        made(scheduled, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(scene.store, "made", crash)
    with pytest.raises(KeyboardInterrupt):
        scene.browser.report_due()
    scene.restart()
    assert Outbox(scene.store, "ads.example").batch(10) == []
    assert outcome(scene) == {(3, 0, 0): 1}


def test_acknowledged_reports_go_and_refused_ones_are_kept_aside():
    scene = Set(**QUIET)
    scene.see()
    assert len(scene.all_reports()) == 2
    outbox = Outbox(scene.store, "ads.example")
    (first, _), (second, kept) = outbox.batch(10)
    outbox.acknowledge([first])
    outbox.refuse(second, "WrongLength")
    assert outbox.batch(10) == []
    assert outbox.refused() == [(kept, "WrongLength")]
    assert Outbox(scene.store, "other.example").refused() == []


def test_an_uploader_s_thread_and_the_browser_s_do_not_disturb_each_other(tmp_path):
    scene = Set(tmp_path / "browser.sqlite", **QUIET)
    outbox, stop, taken = Outbox(scene.store, "ads.example"), threading.Event(), []

    def take() -> None:
        while not stop.is_set() or outbox.batch(1):
            keys = [key for key, _ in outbox.batch(5)]
            outbox.acknowledge(keys)
            taken.extend(keys)

    thread = threading.Thread(target=take)
    thread.start()
    for number in range(60):
        scene.see(destination=f"shop-{number}.example")
        scene.convert(f"shop-{number}.example", visit=1)
        scene.clock.seconds += DAY
        scene.browser.report_due()
    scene.clock.seconds += 60 * DAY
    scene.browser.report_due()
    stop.set()
    thread.join()
    assert len(taken) == len(set(taken)) == 120
