import threading
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from maskedlark.browser import Kind, Outbox
from maskedlark.browser import browser as module
from maskedlark.browser.browser import LimitReached
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Forked, NotDeclared, WrongLength
from maskedlark.parameters.policy import BudgetOverCeiling, UntrustedHelper
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import report
from tests.unit.browser.cases import DAY, START, BrowserSetup, secrets
from tests.unit.parameters.cases import make

QUIET: dict[str, Any] = {"fake_rate": 0.0}


def by_purpose(reports):
    found: dict[Purpose, list[bytes]] = {purpose: [] for purpose in Purpose}
    for data in reports:
        found[report.decode_prefix(data).purpose].append(data)
    return found


def outcome(setup):
    """Sums of a quiet setup: count, purchase, visit over all its sources."""
    measured = by_purpose(setup.all_reports())[Purpose.AGGREGATE]
    return Counter(
        (payload.keys[1], *numbers[1:])
        for payload, numbers in (secrets(data, setup.document) for data in measured)
    )


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_a_source_without_conversion_reports_zero_and_label_0(checks):
    setup = BrowserSetup(**QUIET, checks=checks)
    setup.see(features={"clicks": bytes([1, 2, 3, 4]), "basket": bytes([5, 6])})
    found = by_purpose(setup.all_reports())
    [measured] = found[Purpose.AGGREGATE]
    payload, numbers = secrets(measured, setup.document)
    assert (payload.model, payload.keys, numbers) == (None, ("spring", 7), [1, 0, 0])
    assert len(found[Purpose.TRAIN]) == 2
    shown = {}
    for data in found[Purpose.TRAIN]:
        payload, numbers = secrets(data, setup.document)
        shown[payload.model] = payload.columns, dict(zip(payload.candidates[0], numbers, strict=True))
    assert shown["clicks"] == (bytes([1, 2, 3, 4]), {0: 1, 1: 0})
    assert shown["basket"][1][0] == 1
    assert sum(shown["basket"][1].values()) == 1


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_values_of_several_types_merge_and_one_type_adds_up_to_its_bound(checks):
    setup = BrowserSetup(**QUIET, checks=checks)
    setup.see()
    setup.convert(visit=1)
    setup.convert(purchase=49_000)
    setup.convert(purchase=900)
    setup.convert(visit=1)
    assert outcome(setup) == {(7, 49_900, 1): 1}
    setup.see()
    setup.convert(purchase=50_000)
    setup.convert(purchase=50_000)
    assert (7, 50_000, 0) in outcome(setup)


@pytest.mark.parametrize("checks", ["none", "bits"])
def test_labels_come_from_what_was_attributed(checks):
    setup = BrowserSetup(**QUIET, checks=checks)
    setup.see(features={"clicks": bytes(4), "basket": bytes(2)})
    setup.convert(purchase=40)
    found = by_purpose(setup.all_reports())[Purpose.TRAIN]
    labels = set()
    for data in found:
        payload, numbers = secrets(data, setup.document)
        labels.add((payload.model, payload.candidates[0][numbers.index(1)]))
    assert labels == {("clicks", 1), ("basket", 40)}


def test_the_last_touch_counts_and_clicks_come_before_views():
    setup = BrowserSetup(**QUIET)
    for place, kind in enumerate([Kind.CLICK, Kind.CLICK, Kind.VIEW]):
        setup.see(kind, place=place)
        setup.clock.seconds += 10
    setup.convert(purchase=5)
    assert outcome(setup) == {(0, 0, 0): 1, (1, 5, 0): 1, (2, 0, 0): 1}


def test_expired_sources_and_other_destinations_do_not_count():
    setup = BrowserSetup(**QUIET)
    setup.see(place=1, expiry_s=100)
    setup.see(place=2, destination="other.example")
    setup.clock.seconds += 100
    setup.convert(purchase=5)
    assert outcome(setup) == {(1, 0, 0): 1, (2, 0, 0): 1}


def test_nothing_is_reported_before_the_window_has_ended_and_everything_after_the_longest_delay():
    setup = BrowserSetup(**QUIET)
    setup.see()
    setup.convert(purchase=5)
    setup.clock.seconds = START + 7 * DAY - 1
    assert setup.browser.report_due() == 0
    setup.clock.seconds = START + 8 * DAY
    assert setup.browser.report_due() == 2
    assert setup.browser.report_due() == 0
    assert setup.store.count_sources("ads.example") == 0


def test_a_clock_that_jumps_back_changes_nothing_once_a_report_is_made():
    setup = BrowserSetup(**QUIET)
    setup.see()
    [first, _] = sorted(setup.store.due(1 << 40), key=lambda scheduled: scheduled.due)
    setup.clock.seconds = first.due
    assert setup.browser.report_due() >= 1
    setup.clock.seconds = START + 5
    setup.convert(purchase=5, visit=1)
    found = by_purpose(setup.all_reports())
    assert secrets(found[Purpose.AGGREGATE][0], setup.document)[1] == [1, 0, 0]
    assert secrets(found[Purpose.TRAIN][0], setup.document)[1] == [1, 0]


def test_a_report_carries_the_document_that_was_in_force_when_the_ad_was_seen():
    setup = BrowserSetup(**QUIET)
    old = setup.document
    setup.see()
    setup.parameters.documents.append(make(version=2, previous=old.digest.hex(), k=60, **QUIET))
    setup.convert(purchase=5)
    digests = {report.decode_prefix(data).parameters for data in setup.all_reports()}
    assert digests == {old.digest}


def test_fakes_are_of_decoy_rows_at_the_declared_rate_and_count_for_nothing():
    setup = BrowserSetup(fake_rate=1.0)
    setup.see()
    found = by_purpose(setup.all_reports())
    assert {purpose: len(each) for purpose, each in found.items()} == {Purpose.AGGREGATE: 2, Purpose.TRAIN: 2}
    assert len({len(data) for data in found[Purpose.TRAIN]}) == 1
    assert sorted(secrets(data, setup.document)[1] for data in found[Purpose.AGGREGATE]) == [
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
    setup = BrowserSetup(rng=FixedRandomness(b"noise"), models=models, decoys=[], fake_rate=0.0)
    for _ in range(30):
        setup.see(features={"clicks": bytes([100, 100, 100, 100])})
    found = [secrets(data, setup.document) for data in by_purpose(setup.all_reports())[Purpose.TRAIN]]
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
        (lambda s: s.convert(purchase=2**53), NotDeclared, "is over 9007199254740991"),
        (lambda s: s.convert(**{"x" * 65: 1}), NotDeclared, "64 bytes"),
        (lambda s: s.convert("x" * 254, visit=1), NotDeclared, "253 bytes"),
        (lambda s: s.see(destination=""), NotDeclared, "name of a site"),
        (lambda s: s.see(expiry_s=1.5), NotDeclared, "whole seconds"),
        (lambda s: s.convert(visit=True), NotDeclared, "value visit is not a decimal number"),
        (lambda s: s.convert(visit=None), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit="１２"), NotDeclared, "not a decimal number"),  # noqa: RUF001
        (lambda s: s.convert(visit=np.datetime64("2020")), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit="nan"), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit=float("inf")), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit=Decimal("1E+1000000")), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit="1e-999999999999999999"), NotDeclared, "not a decimal number"),
        (lambda s: s.convert(visit="1e400"), NotDeclared, "is over 9007199254740991"),
        (lambda s: s.convert(visit=-9.1e15), NotDeclared, "is over 9007199254740991"),
        (lambda s: s.convert(visit="0.0000000001"), NotDeclared, "9 digits after"),
        (lambda s: s.convert(visit=0.1 + 0.2), NotDeclared, "round it"),
    ],
)
def test_what_was_not_declared_is_refused_and_nothing_changes(act, error, reason):
    setup = BrowserSetup(**QUIET)
    with pytest.raises(error, match=reason):
        act(setup)
    assert setup.all_reports() == []


def test_keys_that_are_not_the_declared_ones_are_refused():
    setup = BrowserSetup(**QUIET)
    with pytest.raises(NotDeclared, match="campaign, place"):
        setup.browser.register_source("ads.example", Kind.VIEW, "shop.example", {"campaign": 1}, {})


def test_a_browser_keeps_so_many_sources_of_one_origin(monkeypatch):
    monkeypatch.setattr(module, "MAX_SOURCES", 3)
    setup = BrowserSetup(**QUIET)
    for _ in range(3):
        setup.see()
    with pytest.raises(LimitReached, match="wait until"):
        setup.see()


def test_a_document_outside_the_browser_s_policy_is_refused():
    with pytest.raises(BudgetOverCeiling):
        BrowserSetup(budget={"epsilon": 11.0, "delta": 1e-6}).see()
    helpers = [{"name": f"helper-{i}", "identity": f"{i + 7:064x}"} for i in range(2)]
    with pytest.raises(UntrustedHelper):
        BrowserSetup(helpers=helpers).see()


def test_a_trigger_asks_nobody_and_does_the_same_whether_or_not_there_is_a_source():
    """Neither a page, by an error or the work done, nor the service, by a request, learns of sources."""
    setup, statements = BrowserSetup(**QUIET), []
    setup.see()

    setup.browser._parameters = object()  # type: ignore[assignment]
    setup.store._connection.set_trace_callback(
        lambda statement: statements.append(statement.split("VALUES")[0])
    )
    work = []
    for destination in ("shop.example", "nowhere.example"):
        setup.convert(destination, visit=1, unheard_of=10**9)
        work.append(tuple(statements))
        statements.clear()
    assert work[0] == work[1] != ()


def test_values_are_cut_to_their_bounds_and_unknown_ones_left_out():
    setup = BrowserSetup(**QUIET)
    setup.see()
    setup.convert(purchase=-5, unheard_of=7)
    setup.convert(purchase=60_000, visit=9)
    assert outcome(setup) == {(7, 50_000, 1): 1}


@pytest.mark.parametrize("value", [0.1, "0.10", Decimal("0.1")])
def test_decimals_add_up_exactly(value, tmp_path):
    """Ten times a tenth is 1, which is not rounded; in binary floats it is less."""
    setup = BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    for place in range(20):
        setup.see(place=place)
        for _ in range(5):
            setup.convert(purchase=value)
        setup.browser.report_due()
        setup.restart()
        for _ in range(5):
            setup.convert(purchase=value, visit=-0.0)
        setup.clock.seconds += 1
    assert outcome(setup) == {(place, 1, 0): 1 for place in range(20)}


def test_decimals_are_cut_to_their_bounds_and_no_error_quotes_them():
    setup = BrowserSetup(**QUIET)
    setup.see()
    setup.convert(purchase="50000.000000001", visit="-0.5")
    assert outcome(setup) == {(7, 50_000, 0): 1}
    for value in ("4711 EUR", "4711.0000000001"):
        with pytest.raises(NotDeclared) as refused:
            setup.convert(purchase=value)
        assert "4711" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_a_real_label_and_a_sum_keep_the_mean_of_a_decimal():
    setup, count = BrowserSetup(**QUIET), 200  # labels 0, 10, … 100
    for place in range(count):
        setup.see(place=place, features={"basket": b"12"})
        setup.convert(purchase="12.50")
        setup.clock.seconds += 1
        setup.browser.report_due()
    found, labels, sums = by_purpose(setup.all_reports()), [], []
    for data in found[Purpose.TRAIN]:
        payload, masks = secrets(data, setup.document)
        labels += [label for label, mask in zip(payload.candidates[0], masks, strict=True) if mask]
    sums = [secrets(data, setup.document)[1][1] for data in found[Purpose.AGGREGATE]]
    assert (set(labels), len(labels)) == ({10, 20}, count)
    assert (set(sums), len(sums)) == ({12, 13}, count)
    # Seven deviations, of 10 √(3/16) and of 1/2 for one: one false alarm in 10^11.
    assert abs(sum(labels) / count - 12.5) < 7 * 4.34 / count**0.5
    assert abs(sum(sums) / count - 12.5) < 7 * 0.5 / count**0.5


def test_whole_number_labels_round_decimals_at_random():
    labels = [
        {"kind": "integers", "value": "purchase", "low": 0, "high": 3},
        {"kind": "binary", "value": "purchase"},
    ]
    model = {**make().models[0].model_dump(exclude_none=True), "labels": labels}
    setup = BrowserSetup(**QUIET, models=[model], decoys=[])
    for place in range(60):
        setup.see(place=place)
        setup.convert(purchase=0.5)
        setup.clock.seconds += 1
        setup.browser.report_due()
    found = [secrets(data, setup.document)[1] for data in by_purpose(setup.all_reports())[Purpose.TRAIN]]
    # One of the two never occurs once in 5 x 10^17 runs.
    assert {tuple(masks) for masks in found} == {(1, 0, 0, 0, 0, 1), (0, 1, 0, 0, 0, 1)}


def test_a_conversion_without_values_is_one_all_the_same():
    setup = BrowserSetup(**QUIET)
    setup.see()
    setup.convert()
    found = by_purpose(setup.all_reports())
    assert secrets(found[Purpose.TRAIN][0], setup.document)[1] == [0, 1]
    assert secrets(found[Purpose.AGGREGATE][0], setup.document)[1] == [1, 0, 0]


def test_a_conversion_does_not_count_for_an_ad_that_is_seen_later_in_the_same_second():
    setup = BrowserSetup(**QUIET)
    setup.see(place=1)
    setup.convert(purchase=5)
    setup.see(place=2)
    assert outcome(setup) == {(1, 5, 0): 1, (2, 0, 0): 1}


def test_a_report_that_cannot_be_made_holds_up_no_other_and_is_made_later(monkeypatch):
    setup = BrowserSetup(**QUIET)
    setup.parameters.documents.append(make(origin="good.example", **QUIET))
    setup.see()
    keys: dict[str, str | int] = {"campaign": "spring", "place": 7}
    setup.browser.register_source("good.example", Kind.VIEW, "shop.example", keys, {})
    setup.clock.seconds += 60 * DAY
    bad, by_digest = setup.document.digest, setup.parameters.by_digest

    def away(digest):
        if digest == bad:
            raise Forked("two documents for one version")
        return by_digest(digest)

    monkeypatch.setattr(setup.parameters, "by_digest", away)
    assert setup.browser.report_due() == 1
    monkeypatch.setattr(setup.parameters, "by_digest", by_digest)
    assert setup.browser.report_due() == 2


def test_two_threads_that_report_make_every_report_once(tmp_path):
    setup = BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    for number in range(20):
        setup.see(place=number)
    setup.clock.seconds += 60 * DAY
    made: list[int] = []
    threads = [threading.Thread(target=lambda: made.append(setup.browser.report_due())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == len(Outbox(setup.store, "ads.example").batch(1000)) == 40


def test_a_source_that_yields_no_report_is_refused():
    model = {
        "tag": "clicks",
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    }
    setup = BrowserSetup(values=[], keys=[], models=[model], decoys=[], fake_rate=0.0)
    with pytest.raises(NotDeclared, match="yields no report"):
        setup.browser.register_source("ads.example", Kind.VIEW, "shop.example", {}, {})
    assert setup.store.count_sources("ads.example") == 0


def test_the_store_is_readable_by_its_user_alone(tmp_path):
    BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    assert (tmp_path / "browser.sqlite").stat().st_mode & 0o077 == 0


def test_a_restart_loses_nothing_and_doubles_nothing(tmp_path):
    setup = BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    setup.see(place=3)
    setup.restart()
    setup.convert(purchase=5)
    setup.restart()
    setup.clock.seconds += 60 * DAY
    setup.browser.report_due()
    before = sorted(Outbox(setup.store, "ads.example").batch(10))
    setup.restart()
    assert setup.browser.report_due() == 0
    assert sorted(Outbox(setup.store, "ads.example").batch(10)) == before  # a resend is byte-identical
    assert outcome(setup) == {(3, 5, 0): 1}


def test_a_crash_while_a_report_is_stored_leaves_it_to_be_made_again(tmp_path, monkeypatch):
    setup = BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    setup.see(place=3)
    setup.clock.seconds += 60 * DAY
    made = setup.store.made

    def crash(scheduled, data):
        made(scheduled, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(setup.store, "made", crash)
    with pytest.raises(KeyboardInterrupt):
        setup.browser.report_due()
    setup.restart()
    assert Outbox(setup.store, "ads.example").batch(10) == []
    assert outcome(setup) == {(3, 0, 0): 1}


def test_acknowledged_reports_go_and_refused_ones_are_kept_aside():
    setup = BrowserSetup(**QUIET)
    setup.see()
    assert len(setup.all_reports()) == 2
    outbox = Outbox(setup.store, "ads.example")
    (first, _), (second, kept) = outbox.batch(10)
    outbox.acknowledge([first])
    outbox.refuse(second, "WrongLength")
    assert outbox.batch(10) == []
    assert outbox.refused() == [(kept, "WrongLength")]
    assert Outbox(setup.store, "other.example").refused() == []


def test_an_uploader_s_thread_and_the_browser_s_do_not_disturb_each_other(tmp_path):
    setup = BrowserSetup(tmp_path / "browser.sqlite", **QUIET)
    outbox, stop, taken = Outbox(setup.store, "ads.example"), threading.Event(), []

    def take() -> None:
        while not stop.is_set() or outbox.batch(1):
            keys = [key for key, _ in outbox.batch(5)]
            outbox.acknowledge(keys)
            taken.extend(keys)

    thread = threading.Thread(target=take)
    thread.start()
    for number in range(60):
        setup.see(destination=f"shop-{number}.example")
        setup.convert(f"shop-{number}.example", visit=1)
        setup.clock.seconds += DAY
        setup.browser.report_due()
    setup.clock.seconds += 60 * DAY
    setup.browser.report_due()
    stop.set()
    thread.join()
    assert len(taken) == len(set(taken)) == 120
