import math

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import NotDeclared

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
DELTA = 1e-6
KINDS = st.sampled_from(["laplace", "gaussian"])
CHARGES = st.builds(Charge, KINDS, st.floats(0.01, 1e5), st.integers(1, 1000))
ONE_KIND = KINDS.flatmap(
    lambda kind: st.lists(
        st.builds(Charge, st.just(kind), st.floats(0.01, 1e5), st.integers(1, 100)), max_size=4
    )
)
DELTAS = st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3])


def gaussian_delta(epsilon, noise):
    """Balle and Wang's closed form: the δ of noise σ on a sensitivity S, noise = σ / S."""
    with mpmath.workdps(40):
        epsilon, noise = mpmath.mpf(epsilon), mpmath.mpf(noise)
        shifted = [mpmath.ncdf(sign / (2 * noise) - epsilon * noise) for sign in (1, -1)]
        return shifted[0] - mpmath.exp(epsilon) * shifted[1]


def laplace_delta(epsilon, noise):
    """The δ of one Laplace draw of scale b on a sensitivity S, noise = b / S."""
    return max(0.0, 1 - math.exp((epsilon - 1 / noise) / 2))


def pld(multiplier, delta=DELTA):
    found = PLDAccountant(REPLACE_ONE)
    found.compose(dp_accounting.GaussianDpEvent(multiplier))
    return found.get_epsilon(delta)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("noise", [0.0011, 0.05, 0.5, 2.0, 30.0, 999.0])
def test_gaussian_epsilon_is_the_closed_form_from_above(noise, delta):
    found = accountant.epsilon([Charge("gaussian", noise, 1)], delta)
    if found == 0:
        assert gaussian_delta(0, noise) <= delta
        return
    assert gaussian_delta(found, noise) <= delta
    assert gaussian_delta(found * (1 - 1e-6) - 1e-9, noise) > delta


def test_gaussian_of_twice_the_full_sensitivity_costs_2_25_and_not_twice_that():
    ours = accountant.epsilon([Charge("gaussian", 2.0, 1)], DELTA)
    assert ours == pytest.approx(2.2541, abs=1e-4)
    # PLD under REPLACE_ONE takes σ over half the full sensitivity: S is the diameter of what one record adds.
    assert pld(4.0) == pytest.approx(ours, rel=1e-6)
    assert pld(2.0) == pytest.approx(4.89, abs=0.01)
    # RDP takes σ over the full sensitivity, and is looser.
    rdp = RdpAccountant(neighboring_relation=REPLACE_ONE)
    rdp.compose(dp_accounting.GaussianDpEvent(2.0))
    assert rdp.get_epsilon(DELTA) == pytest.approx(2.42, abs=0.01)
    assert ours < rdp.get_epsilon(DELTA)


def test_gaussian_columns_are_one_of_a_smaller_multiplier():
    several = [Charge("gaussian", 4.0, 3), Charge("gaussian", 2.0, 1), Charge("gaussian", 4.0, 1)]
    one = Charge("gaussian", 1 / math.sqrt(4 / 16 + 1 / 4), 1)
    assert accountant.epsilon(several, DELTA) == pytest.approx(accountant.epsilon([one], DELTA), rel=1e-12)


@pytest.mark.parametrize("noise", [1e-3, 0.1, 0.5, 1.0, 7.0, 1e9])
def test_one_laplace_column_costs_its_pure_epsilon_at_most(noise):
    assert accountant.epsilon([Charge("laplace", noise, 1)], 0.0) == 1 / noise
    found = accountant.epsilon([Charge("laplace", noise, 1)], DELTA)
    assert found <= 1 / noise
    assert laplace_delta(found, noise) <= DELTA


def test_laplace_columns_add_up_at_delta_0_and_compose_better_at_another():
    charges = [Charge("laplace", 10.0, 100), Charge("laplace", 4.0, 2)]
    assert accountant.epsilon(charges, 0.0) == 10.5
    assert 3 < accountant.epsilon(charges, DELTA) < 6


def test_many_laplace_columns_cost_what_a_tighter_accountant_says_or_more():
    # ADD_OR_REMOVE_ONE in PLD is a shift by the whole sensitivity, one way: symmetric noise makes it both.
    exact = PLDAccountant(value_discretization_interval=1e-3)
    exact.compose(dp_accounting.LaplaceDpEvent(10.0), 100)
    found = accountant.epsilon([Charge("laplace", 10.0, 100)], DELTA)
    assert exact.get_epsilon(DELTA) <= found <= 1.2 * exact.get_epsilon(DELTA)


def test_both_families_add_up_with_delta_for_the_gaussian_one():
    laplace, gaussian = [Charge("laplace", 10.0, 100)], [Charge("gaussian", 2.0, 1)]
    both = accountant.epsilon(laplace + gaussian, DELTA)
    assert both == 10.0 + accountant.epsilon(gaussian, DELTA)


def test_nothing_costs_nothing():
    assert accountant.epsilon([], 0.0) == 0.0
    assert accountant.epsilon([Charge("gaussian", 1.0, 0)], 0.0) == 0.0
    assert accountant.epsilon([Charge("laplace", 1.0, 0)], DELTA) == 0.0


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("noise", [1e-3, 1e9])
@pytest.mark.parametrize("count", [1, 10**9])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.999])
def test_extremes_have_a_finite_cost(kind, noise, count, delta):
    found = accountant.epsilon([Charge(kind, noise, count)], delta)
    assert math.isfinite(found)
    assert found >= 0


@settings(deadline=None)
@given(st.lists(CHARGES, max_size=3), CHARGES, DELTAS)
def test_composition_never_costs_less(charges, more, delta):
    before = accountant.epsilon(charges, delta)
    assert accountant.epsilon([*charges, more], delta) >= before * (1 - 1e-9) - 1e-11


@settings(deadline=None)
@given(ONE_KIND, st.floats(1.0, 10.0), DELTAS)
def test_more_noise_and_more_delta_never_cost_more(charges, factor, delta):
    found = accountant.epsilon(charges, delta)
    noisier = [Charge(charge.mechanism, charge.noise * factor, charge.columns) for charge in charges]
    assert accountant.epsilon(noisier, delta) <= found * (1 + 1e-8) + 1e-11
    assert accountant.epsilon(charges, 2 * delta) <= found * (1 + 1e-8) + 1e-11


@settings(deadline=None)
@given(KINDS, st.floats(0.01, 1e4), st.integers(1, 100), DELTAS)
def test_the_order_and_the_grouping_of_charges_do_not_matter(kind, noise, count, delta):
    together = [Charge("laplace", 3.0, 2), Charge(kind, noise, count + 1)]
    apart = [Charge(kind, noise, count), Charge("laplace", 3.0, 1), Charge(kind, noise, 1)]
    assert accountant.epsilon([*apart, Charge("laplace", 3.0, 1)], delta) == accountant.epsilon(
        together, delta
    )


@settings(deadline=None, max_examples=40)
@given(KINDS, st.integers(1, 200), st.floats(0.01, 50.0), DELTAS, st.floats(20.0, 1e4))
def test_noise_for_is_the_least_that_fits(kind, count, epsilon, delta, noise_before):
    before = [Charge(kind, noise_before, 1)]
    try:
        found = accountant.noise_for(kind, count, epsilon, delta, before)
    except NotDeclared:
        assert accountant.epsilon(before, delta) > epsilon * 0.99
        return
    assert accountant.epsilon([*before, Charge(kind, found, count)], delta) <= epsilon
    assert float(f"{found:.4g}") == found
    less = found - 10.0 ** (math.floor(math.log10(found)) - 3)  # one less in the fourth digit
    if less > 1e-3:
        assert accountant.epsilon([*before, Charge(kind, less, count)], delta) > epsilon


def test_noise_for_laplace_at_delta_0_is_the_number_of_columns_over_epsilon():
    assert accountant.noise_for("laplace", 3, 2.0, 0.0) == 1.5
    assert accountant.noise_for("laplace", 1, 3.0, 0.0) == 0.3334
    assert accountant.noise_for("laplace", 1, 1e9, 0.0) == 1e-3


def test_nothing_fits_a_budget_that_is_spent():
    with pytest.raises(NotDeclared, match="no noise fits"):
        accountant.noise_for("laplace", 1, 1.0, 0.0, [Charge("laplace", 1.0, 1)])
    with pytest.raises(NotDeclared, match="delta 0"):
        accountant.noise_for("gaussian", 1, 1.0, 0.0)


def test_senseless_arguments_are_refused():
    with pytest.raises(NotDeclared, match="delta 0"):
        accountant.epsilon([Charge("gaussian", 1.0, 1)], 0.0)
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(NotDeclared):
            accountant.epsilon([], delta)
    for noise in (0.0, math.nan, math.inf, -1.0):
        with pytest.raises(NotDeclared):
            Charge("laplace", noise, 1)
    with pytest.raises(NotDeclared):
        Charge("laplace", 1.0, -1)
    with pytest.raises(NotDeclared):
        Charge("uniform", 1.0, 1)  # type: ignore[arg-type]


def test_a_mixture_that_is_chosen_on_the_way_is_bounded_order_by_order():
    """By hand: a Gaussian's Rényi divergence is α / 2σ², a Laplace one's is at most its ε."""
    gaussian, laplace = Charge("gaussian", 4.0, 3), Charge("laplace", 20.0, 2)
    found = accountant.epsilon([gaussian, laplace], 1e-6, mixed=True)
    shared = 1e-6 / len(accountant._ORDERS)
    by_hand = min(
        3 * order / (2 * 4.0**2) + 2 / 20 + math.log(1 / shared) / (order - 1) for order in accountant._ORDERS
    )
    assert accountant.epsilon([gaussian], 1e-6, mixed=True) < found < by_hand
    assert found > accountant.epsilon([gaussian, laplace], 1e-6) > accountant.epsilon([gaussian], 1e-6)
    # As long as there are Laplace columns alone, what may come costs nothing yet.
    assert accountant.epsilon([laplace], 1e-6, mixed=True) == accountant.epsilon([laplace], 1e-6) == 0.1
    noise = accountant.noise_for("gaussian", 1, 2.0, 1e-6, [laplace], mixed=True)
    assert accountant.epsilon([laplace, Charge("gaussian", noise, 1)], 1e-6, mixed=True) <= 2.0
