"""Nothing shows: an observer with all that the ad server sees cannot tell converters from others.

The observer is given more than an ad server has: which reports belong to which source, and half of the truth
to learn from. A figure on ours fails beyond 5 standard deviations of a blind guess: one false alarm in 1.7
million. The same observer tells converters apart when a browser reports conversions at once.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from maskedlark.audit import attacks
from maskedlark.browser import Kind
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from tests.unit.browser.cases import DAY, START, BrowserSetup, openers

DEVIATIONS = 5
A_BROWSER = 100
FEATURES = {"clicks": bytes.fromhex("00ff80aa")}  # the decoy's, so that fakes look like real ones


Note = tuple[int | None, Purpose, int, bytes]
"""For which source (none: a fake), what for, when, and the report."""


class Watched(BrowserSetup):
    """A browser whose reports are noted as they are made: for whom, when, in which order."""

    def start(self) -> None:
        super().start()
        self.seen: list[Note] = []
        made = self.store.made

        def note(scheduled, data):
            self.seen.append((scheduled.source, scheduled.purpose, self.clock.now(), data))
            return made(scheduled, data)

        self.store.made = note  # type: ignore[method-assign]

    def run_to_the_end(self) -> None:
        for moment in sorted({scheduled.due for scheduled in self.store.due(1 << 40)}):
            self.clock.seconds = max(moment, self.clock.seconds)
            self.browser.report_due()


class AtOnce(Watched):
    """The naive browser: a conversion is reported when it happens."""

    def convert(self, destination: str = "shop.example", **values: int) -> None:
        super().convert(destination, **values)
        self.browser._attribute()
        chosen = [s for s in self.store.sources_of("ads.example", destination) if s.conversions]
        for source in chosen:
            self.store.run("UPDATE scheduled SET due = ? WHERE source = ?", self.clock.now(), source.number)
        self.browser.report_due()


def live(setup: BrowserSetup, draws: FixedRandomness) -> NDArray[np.bool_]:
    """A hundred ads, each of a destination of its own, about half of which lead to a conversion."""
    converts: NDArray[np.bool_] = draws.below(2, A_BROWSER) == 1
    for number, converted in enumerate(converts):
        setup.clock.seconds = START + int(draws.below(DAY, 1)[0])
        setup.see(Kind.CLICK, f"shop-{number}.example", features=FEATURES)
        if converted:
            setup.clock.seconds += int(draws.below(5 * DAY, 1)[0])
            setup.convert(f"shop-{number}.example", purchase=int(draws.below(50_000, 1)[0]) + 1)
    return converts


def watched(sources: int, kind: type[Watched]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows of all that the ad server sees of a source, and whether it converted."""
    rows, truth = [], []
    for browser in range(sources // A_BROWSER):
        setup = kind(rng=FixedRandomness(b"browser %d" % browser))
        truth.append(live(setup, FixedRandomness(b"life %d" % browser)))
        setup.run_to_the_end()
        fakes = [each for each in setup.seen if each[0] is None]
        for number in range(1, A_BROWSER + 1):
            mine = [(place, each) for place, each in enumerate(setup.seen) if each[0] == number]
            rows.append(_row(mine, len(fakes), setup.document))
        setup.store.close()
    return np.array(rows, np.float64), np.concatenate(truth)


def _row(mine: list[tuple[int, Note]], fakes: int, document: Document) -> list[float]:
    row: list[float] = [len(mine), fakes]
    layouts = {purpose: document.layout(purpose) for purpose in Purpose}
    for wanted in Purpose:
        for place, (_, purpose, at, data) in mine:
            if purpose is wanted:
                head = layouts[purpose].head(data)
                row += [place, at - START, at % DAY, len(data), head.hour, *head.id, *head.column_hash]
    return row


def check(sources: int) -> None:
    rows, truth = watched(sources, Watched)
    for name, found in attacks.learn(rows, truth).items():
        assert abs(found.deviations) < DEVIATIONS, (name, str(found))
    for purpose in range(2):  # every source has the same reports, of the same sizes
        assert len(set(rows[:, 2 + 3 + purpose * 53])) == 1
    assert set(rows[:, 0]) == {2}


def test_an_observer_cannot_tell_who_converted():
    check(2_000)


@pytest.mark.long
def test_an_observer_cannot_tell_who_converted_among_20_000_sources():
    check(20_000)


def test_the_observer_sees_a_browser_that_reports_at_once():
    rows, truth = watched(1_000, AtOnce)
    assert all(found.value > 0.9 for found in attacks.learn(rows, truth).values())


class Seen(NamedTuple):
    """What both helpers see of reports for one purpose, in the same order, and which are fakes."""

    rows: tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]
    fake: list[bool]


@pytest.fixture(scope="module")
def like_the_decoys() -> dict[Purpose, Seen]:
    found = {purpose: Seen(([], []), []) for purpose in Purpose}
    for browser in range(12):
        setup = Watched(rng=FixedRandomness(b"fakes %d" % browser), fake_rate=1.0, **_only_clicks())
        live(setup, FixedRandomness(b"life %d" % browser))
        setup.run_to_the_end()
        for source, purpose, _, data in setup.seen:
            for place, rows in enumerate(found[purpose].rows):
                rows.append(_helper_row(setup, data, purpose, place))
            found[purpose].fake.append(source is None)
        setup.store.close()
    return found


@pytest.mark.parametrize("place", [0, 1])
def test_one_helper_cannot_tell_fakes_from_real_records_like_the_decoys(place, like_the_decoys):
    for purpose, seen in like_the_decoys.items():
        fake = np.array(seen.fake)
        assert 0.4 < np.mean(fake) < 0.6
        shuffled = np.argsort(FixedRandomness(b"shuffle").below(1 << 60, len(fake)))
        found = attacks.learn(np.array(seen.rows[place])[shuffled], fake[shuffled])
        for name, each in found.items():
            assert abs(each.deviations) < DEVIATIONS, (purpose, name, str(each))


def _only_clicks() -> dict[str, Any]:
    model = {
        "tag": "clicks",
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    }
    decoys = [{"keys": {"campaign": "spring", "place": 7}}, {"tag": "clicks", "columns": "00ff80aa"}]
    return {"models": [model], "decoys": decoys}


def _helper_row(setup: BrowserSetup, data: bytes, purpose: Purpose, place: int) -> NDArray[np.float64]:
    document = setup.document
    declared = document.measure if purpose is Purpose.AGGREGATE else document.declared_models["clicks"]
    opener = openers(document, purpose)[place]
    part = document.layout(purpose).parts([data], place).tobytes()
    head, plain = opener.unseal(part)
    secret = opener.open(part)[1].secret
    share = sharing.recover(
        sharing.byte_rows(secret, len(secret)),
        sharing.byte_rows(head.id, 16),
        purpose,
        place,
        declared.secrets(),
    )
    return np.concatenate(
        [[len(part)], np.frombuffer(plain, np.uint8), attacks.bits(field.to_bytes(share), 1)[0]]
    )
