"""Courses: what sessions cost, held to closed forms, to a twin that integrates, and to what is known."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.calibration import noise_for_session, planned
from maskedlark.dp.session_charge import (
    MAX_STEPS,
    ClosedSessionCharge,
    SessionCharge,
    adserver_epsilon,
    batch_bound,
    batches_reach_k,
    coalition_epsilon,
    sampled_epsilon,
)
from maskedlark.errors import NotDeclared
from tests.twins import session_charge as twin

DELTA = 1e-6
NOISES = st.floats(0.4, 20.0)
RATES = st.sampled_from([0.01, 0.02, 0.1, 0.4])
STEPS = st.integers(1, 300)


def gaussian(noise, rate, steps, batches, delta=DELTA):
    return SessionCharge("gaussian", noise, rate, steps, batches, delta)


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("steps", [1, 10, 24])
def test_at_rate_1_the_sampled_figure_is_the_closed_form(noise, steps):
    """What pins the multiplier: σ = noise · S, with S the full sensitivity of a replaced secret."""
    closed = accountant.epsilon([Charge("gaussian", noise, steps)], DELTA)
    assert sampled_epsilon(noise, 1.0, steps, DELTA) == pytest.approx(closed, rel=2e-4)


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 0.02), (1.0, 0.02), (1.0, 0.5), (3.0, 0.2), (0.7, 0.9)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_one_sampled_sum_costs_what_integration_finds(noise, rate, delta):
    found = sampled_epsilon(noise, rate, 1, delta)
    assert twin.delta(found, noise, rate) <= delta
    if found > 0:
        assert twin.delta(found * 0.995, noise, rate) > delta


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "widest"),
    [(1.0, 0.02, 500, 30.0), (2.0, 0.02, 500, 10.0), (1.0, 0.2, 50, 60.0), (4.0, 0.5, 30, 30.0)],
)
@pytest.mark.parametrize("delta", [1e-6, 1e-8])
def test_many_sampled_sums_cost_what_a_transform_of_the_densities_finds(noise, rate, steps, widest, delta):
    found = sampled_epsilon(noise, rate, steps, delta)
    assert found == pytest.approx(twin.epsilon(noise, rate, steps, delta, widest), rel=2e-3)


def test_half_the_multiplier_would_be_another_figure():
    """The library's multiplier is in units of S/2: told ours as it is, it would find twice the cost."""
    right = twin.epsilon(2.0, 0.02, 500, DELTA, 10.0)
    event = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(2.0))
    told = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    told.compose(event, 500)
    assert told.get_epsilon(DELTA) > 2 * right


def test_the_figures_of_the_design_are_those_of_half_its_multiplier():
    """σ = 2 S/2: the design counts σ in units of ψ, so its multiplier 2 is noise 1 here."""
    assert sampled_epsilon(1.0, 0.02, 500, DELTA) == pytest.approx(2.0, abs=0.01)
    for batches, figure in ((10, 19.4), (24, 34.6)):
        found = accountant.epsilon([Charge("gaussian", 1.0, batches)], DELTA)
        assert found == pytest.approx(figure, abs=0.05)
    # With noise 2, as we count it.
    assert sampled_epsilon(2.0, 0.02, 500, DELTA) == pytest.approx(0.941, abs=0.002)
    assert accountant.epsilon([Charge("gaussian", 2.0, 10)], DELTA) == pytest.approx(8.306, abs=0.002)
    assert accountant.epsilon([Charge("gaussian", 2.0, 24)], DELTA) == pytest.approx(14.090, abs=0.002)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_opposite_ends_of_a_line_are_the_worst_of_the_plane(epsilon, rate):
    """Two gradients of norm S/2 at any angle, and shorter ones, cost no more than opposite ones."""
    sigma, side = 0.6, np.linspace(-4.5, 4.5, 451)
    x, y = np.meshgrid(side, side)

    def density(angle, length):
        moved = (x - length * math.cos(angle)) ** 2 + (y - length * math.sin(angle)) ** 2
        still = (1 - rate) * np.exp(-(x**2 + y**2) / (2 * sigma**2))
        return (still + rate * np.exp(-moved / (2 * sigma**2))) / (2 * math.pi * sigma**2)

    def delta(angle, length):
        apart = density(0.0, 0.5) - math.exp(epsilon) * density(angle, length)
        back = density(angle, length) - math.exp(epsilon) * density(0.0, 0.5)
        return max(float(np.maximum(each, 0).sum()) for each in (apart, back)) * (side[1] - side[0]) ** 2

    worst = delta(math.pi, 0.5)
    assert worst == pytest.approx(twin.delta(epsilon, sigma, rate), rel=1e-3, abs=1e-9)
    for angle in np.linspace(0, math.pi, 5):
        for length in (0.0, 0.2, 0.5):
            assert delta(angle, length) <= worst * (1 + 1e-6) + 1e-12


def test_the_whole_of_a_session_charge_is_computed_at_its_part_of_delta():
    charge = gaussian(1.0, 0.02, 500, 30)
    assert adserver_epsilon(charge) == sampled_epsilon(1.0, 0.02, 500, 12 / 16 * DELTA)
    known = accountant.epsilon([Charge("gaussian", 1.0, 30)], 13 / 16 * DELTA)
    assert coalition_epsilon(charge) == known
    unsampled = gaussian(1.0, 1.0, 30, 30)
    assert adserver_epsilon(unsampled) == coalition_epsilon(unsampled) == known


def test_laplace_sessions_have_one_figure():
    charge = SessionCharge("laplace", 20.0, 0.02, 500, 30, DELTA)
    assert adserver_epsilon(charge) == coalition_epsilon(charge)
    assert adserver_epsilon(SessionCharge("laplace", 20.0, 1.0, 30, 30, 0.0)) == 1.5
    assert adserver_epsilon(SessionCharge("laplace", 20.0, 1.0, 32, 32, 0.0).closed(9, 16)) == pytest.approx(
        0.8
    )


@settings(deadline=None, max_examples=15)
@given(NOISES, RATES, STEPS, st.data())
def test_the_ad_server_never_learns_more_than_a_coalition(noise, rate, steps, data):
    charge = gaussian(noise, rate, steps, data.draw(st.integers(0, steps)))
    assert 0 <= adserver_epsilon(charge) <= coalition_epsilon(charge)


@settings(deadline=None, max_examples=15)
@given(NOISES, st.sampled_from([0.02, 0.1, 1.0]), STEPS, st.data())
def test_a_closed_session_costs_what_was_used_or_more_and_never_more_than_the_whole(noise, rate, steps, data):
    batches = data.draw(st.integers(1, steps))
    used = data.draw(st.integers(0, steps))
    charge = gaussian(noise, rate, steps, batches)
    kept = charge.kept(used)
    assert used <= kept <= steps
    closed = charge.closed(used, min(kept, batches))
    plain = accountant.epsilon([Charge("gaussian", noise, min(used, batches))], DELTA)
    assert plain * (1 - 1e-9) <= coalition_epsilon(closed) <= coalition_epsilon(charge)
    assert adserver_epsilon(closed) <= adserver_epsilon(charge)
    if used and rate < 1:
        assert adserver_epsilon(closed) >= min(plain, sampled_epsilon(noise, rate, used, DELTA)) * 0.999
    assert closed.delta == (DELTA if used else 0.0)


def test_an_early_end_bounds_the_loss_itself():
    """A Gaussian's loss is N(μ²/2, μ²): beyond the figure of an early end with 1/16 of δ at most."""
    charge = gaussian(4.0, 1.0, 40, 40)
    for used in (10, 20, 30):
        mu = math.sqrt(used) / 4.0
        beyond = 0.5 * math.erfc((coalition_epsilon(charge.closed(used, used)) / mu - mu / 2) / math.sqrt(2))
        assert beyond <= DELTA / 16
    assert coalition_epsilon(charge.closed(10, 10)) < 0.6 * coalition_epsilon(charge)


def test_a_session_that_was_not_used_costs_nothing():
    closed = gaussian(1.0, 0.02, 500, 30).closed(0, 0)
    assert (adserver_epsilon(closed), coalition_epsilon(closed), closed.delta) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("steps", "used", "kept"),
    [(500, 0, 0), (500, 1, 125), (500, 125, 125), (500, 126, 250), (500, 376, 500), (500, 500, 500),
     (1, 1, 1), (2, 1, 1), (3, 1, 2), (3, 2, 3), (10, 2, 3), (10, 3, 5), (10, 6, 8)],
)  # fmt: skip
def test_a_session_ends_at_the_quarter_that_was_begun(steps, used, kept):
    assert gaussian(1.0, 0.02, steps, 1).kept(used) == kept


def test_a_session_has_at_most_three_early_ends():
    for steps in range(1, 60):
        ends = {gaussian(1.0, 1.0, steps, 0).kept(used) for used in range(1, steps + 1)}
        assert len(ends - {steps}) <= 3


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.02, 500), (2.0, 0.02, 500), (1.0, 0.2, 100)])
def test_what_is_announced_is_exceeded_so_rarely_that_it_may_be_said(noise, rate, steps):
    from scipy.stats import binom

    epsilon = sampled_epsilon(noise, rate, steps, 12 / 16 * DELTA)
    allowed = DELTA / 128
    for kept in (steps // 4, steps):
        found = batch_bound("gaussian", noise, rate, steps, DELTA, kept)
        assert binom.sf(found, kept, rate) * (1 + math.exp(epsilon)) <= allowed
        assert binom.sf(found - 1, kept, rate) * (1 + math.exp(epsilon)) > allowed
    assert batch_bound("gaussian", noise, 1.0, steps, DELTA) == steps


def test_batches_that_may_fall_below_k_amplify_nothing():
    charge = gaussian(1.0, 0.02, 500, 34)
    assert batches_reach_k(charge, 100_000, 50)
    assert not batches_reach_k(charge, 4_000, 50)
    assert batches_reach_k(charge, 4_000, 1)
    assert batches_reach_k(charge, 12_000, 50)
    assert not batches_reach_k(charge, 12_000, 50, held_out=0.7)
    assert batches_reach_k(gaussian(1.0, 1.0, 500, 34), 10, 50)


@pytest.mark.parametrize(
    ("kind", "rate", "steps", "delta", "epsilon", "coalition"),
    [
        ("gaussian", 0.02, 500, 1e-6, 2.0, math.inf),
        ("gaussian", 0.02, 500, 1e-6, 2.0, 20.0),
        ("gaussian", 0.3, 200, 1e-6, 8.0, math.inf),
        ("gaussian", 0.02, 500, 1e-6, 30.0, math.inf),
        ("gaussian", 1.0, 10, 1e-7, 1.0, math.inf),
        ("laplace", 0.02, 500, 1e-6, 8.0, math.inf),
        ("laplace", 1.0, 5, 0.0, 8.0, 1e6),
    ],
)
def test_calibration_finds_the_least_noise_that_fits(kind, rate, steps, delta, epsilon, coalition):
    found = noise_for_session(kind, rate, steps, delta, epsilon, coalition)

    def fits(noise):
        charge = planned(kind, noise, rate, steps, delta)
        return adserver_epsilon(charge) <= epsilon and coalition_epsilon(charge) <= coalition

    assert fits(found)
    assert float(f"{found:.4g}") == found
    assert not fits(found - 10.0 ** (math.floor(math.log10(found)) - 3))


def test_no_noise_fits_nothing():
    for left in (0.0, -1.0):
        with pytest.raises(NotDeclared, match="no noise fits"):
            noise_for_session("gaussian", 0.02, 500, 1e-6, left)
        with pytest.raises(NotDeclared, match="no noise fits"):
            noise_for_session("gaussian", 0.02, 500, 1e-6, 1.0, coalition=left)


@pytest.mark.parametrize("noise", [1e-3, 0.05, 1e3, 1e9])
@pytest.mark.parametrize("rate", [1e-6, 0.5])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.5])
def test_extremes_have_a_finite_cost(noise, rate, delta):
    charge = gaussian(noise, rate, 10, 10, delta)
    assert 0 <= adserver_epsilon(charge) <= coalition_epsilon(charge) < math.inf


@pytest.mark.parametrize(
    "changes",
    [{"rate": 0.0}, {"rate": 1.1}, {"rate": math.nan}, {"steps": 0}, {"steps": MAX_STEPS + 1},
     {"batches": 11}, {"batches": -1}, {"delta": 0.0}, {"delta": 1.0}, {"delta": math.nan},
     {"noise": 0.0}, {"mechanism": "uniform"}],
)  # fmt: skip
def test_senseless_sessions_are_refused(changes):
    fields = {"mechanism": "gaussian", "noise": 1.0, "rate": 0.5, "steps": 10, "batches": 5, "delta": DELTA}
    with pytest.raises(NotDeclared):
        SessionCharge(**{**fields, **changes})


@pytest.mark.parametrize(("steps", "batches"), [(11, 1), (3, 4), (8, 6), (-1, 0), (4, 1), (5, -1)])
def test_a_session_is_closed_at_a_quarter_with_no_more_than_it_had(steps, batches):
    with pytest.raises(NotDeclared):
        ClosedSessionCharge(gaussian(1.0, 0.5, 10, 5), steps, batches)
