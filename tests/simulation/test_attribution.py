"""Random lives of a browser against a simple reference: sources, triggers, expiries, clock jumps, restarts.

A failing run names its seed: `run(seed)` repeats it.
"""

import pytest

from maskedlark.browser import Kind, Store
from maskedlark.randomness import FixedRandomness
from tests.twins.attribution import Reference
from tests.unit.browser.cases import DAY, BrowserSetup, secrets

OPERATIONS = 500
DESTINATIONS = ("shop.example", "other.example", "third.example")
WINDOW = 7 * DAY


def life(path, seed: int) -> None:
    """One run of random operations; every source is told apart by its place, so a loss or a double shows."""
    draws = FixedRandomness(b"life %d" % seed)
    setup = BrowserSetup(
        path, FixedRandomness(b"browser %d" % seed), models=[], training=None, decoys=[], fake_rate=0.0
    )
    reference, places = Reference(), 0
    for _ in range(OPERATIONS):
        what, which, number, step = (int(draws.below(bound, 1)[0]) for bound in (20, 3, 30_000, 2 * DAY))
        if what < 7:
            kind = Kind.CLICK if number % 3 == 0 else Kind.VIEW
            lives = 1 + number * 20 if number % 2 else None
            setup.see(kind, DESTINATIONS[which], places, features={}, expiry_s=lives)
            reference.see(places, kind is Kind.CLICK, DESTINATIONS[which], setup.clock.now(), lives or WINDOW)
            places += 1
        elif what < 14:
            values = [{"purchase": number}, {"visit": 1}, {"purchase": number, "visit": 1}][number % 3]
            setup.convert(DESTINATIONS[which], **values)
            reference.convert(
                DESTINATIONS[which], setup.clock.now(), values.get("purchase", 0), values.get("visit", 0)
            )
        elif what < 17:
            setup.clock.seconds += step if number % 4 else -step // 8  # clocks jump back now and then
        elif what < 19:
            setup.browser.report_due()
            # When is random, so the reference is told which sources were reported.
            alive = {s.keys["place"] for d in DESTINATIONS for s in setup.store.sources_of("ads.example", d)}
            reference.close(set(range(places)) - alive)
        else:
            setup.restart()
    found = [secrets(data, setup.document) for data in setup.all_reports()]
    outcome = sorted((payload.keys[1], *numbers[1:]) for payload, numbers in found)
    setup.store.close()
    assert all(numbers[0] == 1 for _, numbers in found)
    assert outcome == reference.outcome()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """These runs close and open the store but never cut the power, so they need not wait for the disk."""
    monkeypatch.setattr(Store, "SYNCHRONOUS", "OFF")


@pytest.mark.parametrize("seed", range(6))
def test_a_random_life_equals_the_reference(tmp_path, seed):
    life(tmp_path / "browser.sqlite", seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_random_lives_equal_the_reference(tmp_path, block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        life(tmp_path / f"{seed}.sqlite", seed)
        (tmp_path / f"{seed}.sqlite").unlink()
