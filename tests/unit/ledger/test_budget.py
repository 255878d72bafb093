"""A caller divides a budget by what was seen: an exact search for the best way to do it."""

import math
from functools import cache

import numpy as np
import pytest

from maskedlark.dp.accountant import Charge
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.functions import Functions
from maskedlark.functions.function import Function, SteppedFunction
from maskedlark.ledger import budget
from maskedlark.ledger.budget import Account, BudgetEntry
from maskedlark.ledger.errors import DeltaExhausted
from maskedlark.parameters.document import SINGLE
from tests.unit.parameters import cases

EPSILON = 3.0
GAUSSIAN, LAPLACE = ({"kind": kind, "noise_floor": 0.1} for kind in ("gaussian", "laplace"))
SESSION = SessionCharge("laplace", 1.0, 1.0, 1, 1, 0.0)
COLUMN = Charge("laplace", 1.0, 1)
STEP = 0.005
LOSSES = np.arange(-12.0, 15.0, STEP)


def make(sums, gradient, cells, **changes):
    training = {
        "adserver": {"epsilon": EPSILON, "delta": 1e-6},
        "coalition": {"epsilon": EPSILON, "delta": 1e-6},
    }
    return cases.make(
        k=1,
        budget={"epsilon": EPSILON, "delta": 2e-6},
        training=training,
        mechanisms={"sums": sums, "gradient": gradient, "cells": cells},
        **changes,
    )


def laplace_delta(epsilon, pure):
    """The δ at every ε of one Laplace column that costs `pure`."""
    inside = -np.expm1((np.clip(epsilon, -pure, pure) - pure) / 2)
    return np.where(epsilon < -pure, -np.expm1(np.minimum(epsilon, 0.0)), inside)


def later(value, variance):
    """The mean of a value of the loss, after another Gaussian release."""
    reach = math.ceil(10 * math.sqrt(variance) / STEP)
    density = np.exp(-((np.arange(-reach, reach + 1) * STEP) ** 2) / (2 * variance))
    moved = np.interp(LOSSES + variance / 2, LOSSES, value)
    return np.convolve(np.pad(moved, reach, mode="edge"), density / density.sum(), "valid")


def best_delta(document, stream, other, looks):
    """The δ of a caller who looks up to so often, and spends the rest elsewhere when that is best.

    The noise is what the account lets through. Backwards: what the rest is worth, for every loss so far.
    """
    noise = Account(document).noise_that_fits(BudgetEntry(stream, (b"seen",), Charge("gaussian", 1.0, looks)))
    assert noise is not None
    value = np.maximum(0.0, -np.expm1(EPSILON - LOSSES))
    for seen in reversed(range(looks)):
        value = later(value, noise**-2)
        if seen and other is not None:
            account = Account(document)
            account.add([BudgetEntry(stream, (b"seen",), Charge("gaussian", noise, seen))])
            least = account.noise_that_fits(other)
            if least is not None:
                value = np.maximum(value, laplace_delta(EPSILON - LOSSES, 1 / least))
    return float(np.interp(0.0, LOSSES, value))


@pytest.mark.parametrize(
    ("stream", "other", "document"),
    [
        (None, BudgetEntry("clicks", (b"rest",), COLUMN), make(GAUSSIAN, GAUSSIAN, LAPLACE)),
        ("clicks", BudgetEntry(None, (b"rest",), COLUMN), make(LAPLACE, GAUSSIAN, GAUSSIAN)),
        ("clicks", BudgetEntry("clicks", (b"seen",), SESSION, b"id"), make(GAUSSIAN, LAPLACE, GAUSSIAN)),
    ],
    ids=["sums, then cells", "cells, then sums", "cells, then a session"],
)
def test_no_look_at_gaussian_answers_tells_where_to_spend_the_rest(monkeypatch, stream, other, document):
    allowed = Account(document).delta(stream)
    for looks in (2, 12):
        assert best_delta(document, stream, other, looks) < 0.1 * allowed
    monkeypatch.setattr(Account, "mixed", False)
    # The closed form, as if the mixture were fixed. Looking alone gains nothing, so the search is exact.
    assert best_delta(document, stream, None, 12) == pytest.approx(allowed, rel=0.01)
    assert best_delta(document, stream, other, 2) > 1.3 * allowed
    assert best_delta(document, stream, other, 12) > 3 * allowed


def test_the_closed_form_is_for_single_gaussian_releases_alone():
    """A session over unknown batches has no Gaussian loss, whatever its noise."""
    alone = {"models": [], "decoys": [], "fake_rate": 0.0, "training": None}
    sums = cases.make(mechanisms={"sums": GAUSSIAN}, **alone)
    assert not Account(sums).mixed
    assert Account(cases.make(mechanisms={"sums": GAUSSIAN, "cells": LAPLACE}, **alone)).mixed
    assert not Account(single(GAUSSIAN)).mixed
    assert Account(single(LAPLACE)).mixed
    assert Account(make(GAUSSIAN, GAUSSIAN, GAUSSIAN)).mixed
    assert Account(cases.make()).mixed


def single(sums, **stepped):
    """Models, and no function that has steps."""
    both = {name: {"epsilon": EPSILON, "delta": 1e-6} for name in ("adserver", "coalition")}
    return cases.make(
        k=1,
        budget={"epsilon": EPSILON, "delta": 2e-6},
        training=both,
        mechanisms={"sums": sums, "moments": GAUSSIAN, "cells": GAUSSIAN, **stepped},
    )


@pytest.mark.parametrize("own", ["gradient", "mine"])
def test_where_no_session_can_be_opened_none_has_a_part_of_delta(own):
    """A function that is not known may have steps."""
    without, stepped = single(GAUSSIAN), single(GAUSSIAN, **{own: GAUSSIAN})
    for document, part in ((without, 0.0), (stepped, 2.5e-7)):
        account = Account(document)
        assert document.has_sessions == bool(part)
        assert account.sessions_delta("clicks") == part
        assert account.delta("clicks") == 5e-7 - part
        assert account.delta(None) == 1e-6
        session = BudgetEntry("clicks", (b"one",), SessionCharge("gaussian", 9.0, 1.0, 1, 1, 1e-7), b"id")
        assert account.fits(session) == bool(part)
    assert isinstance(Account(without).refusal(session), DeltaExhausted)


def test_a_delta_that_sessions_took_whole_leaves_nothing_but_rounding():
    """Five sessions of 2e-6 leave 1.7e-21 of 1e-5 in floats: no session can be opened with that."""
    both = {name: {"epsilon": EPSILON, "delta": 4e-5} for name in ("adserver", "coalition")}
    account = Account(cases.make(k=1, budget={"epsilon": EPSILON, "delta": 5e-5}, training=both))
    assert account.sessions_delta("clicks") == 1e-5
    charge = SessionCharge("gaussian", 9.0, 1.0, 1, 1, 2e-6)
    sessions = [BudgetEntry("clicks", (b"one",), charge, bytes([place])) for place in range(6)]
    account.add(sessions[:5])
    (clicks,) = [each for each in account.streams() if each.stream == "clicks"]
    assert clicks.session_delta_left == 0
    refusal = account.refusal(sessions[5])
    assert refusal.facts()["left_delta"] == 0
    assert "no session fits any more, with any delta" in str(refusal)


def test_single_functions_have_no_steps():
    functions = Functions()
    assert {name for name in functions if isinstance(functions[name], Function)} <= SINGLE
    assert not [name for name in functions if name in SINGLE and isinstance(functions[name], SteppedFunction)]


LOOKS = {"clicks": 6.5, "basket": 4.3, None: 7.1}
"""Noise of a look, by stream."""


def best_looks(document):
    """The δ of a caller who chooses after each look, by the loss so far, in which stream to look next.

    Exact, over everything that the account lets through. Backwards, from all that cannot be continued.
    """
    stop = np.maximum(0.0, -np.expm1(EPSILON - LOSSES))

    @cache
    def value(looks):
        account, found = Account(document), [stop]
        account.add(look(*each) for each in zip(LOOKS, looks, strict=True) if each[1])
        for place, (stream, noise) in enumerate(LOOKS.items()):
            if account.fits(look(stream, 1)):
                more = tuple(count + (i == place) for i, count in enumerate(looks))
                found.append(later(value(more), noise**-2))
        return np.max(found, axis=0)

    return float(np.interp(0.0, LOSSES, value((0, 0, 0))))


def look(stream, count):
    return BudgetEntry(stream, (b"seen",), Charge("gaussian", LOOKS[stream], count))


def test_no_look_at_gaussian_answers_tells_which_stream_to_look_at_next(monkeypatch):
    document = single(GAUSSIAN)
    found, allowed = best_looks(document), document.budget.delta
    assert 0.25 * allowed < found < allowed
    # Were streams not added up, the same search would notice.
    monkeypatch.setattr(budget, "_sum", budget._dearest)
    assert best_looks(document) > 100 * allowed
