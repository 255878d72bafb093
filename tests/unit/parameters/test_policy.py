"""What a browser or helper refuses although the origin signed it: each with an error of its own."""

import json
from dataclasses import replace

import pytest

from maskedlark.dp.accountant import Charge
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.errors import InvalidDocument
from maskedlark.ledger.budget import Account, BudgetEntry
from maskedlark.parameters import randomised
from maskedlark.parameters.policy import (
    BudgetOverCeiling,
    KTooSmall,
    NotChecked,
    Policy,
    TooFewFakes,
    TooFewHelpers,
    UntrustedHelper,
)
from maskedlark.parameters.settings import Budget
from tests.unit.parameters.cases import HELPER_KEYS, make, settings

IDENTITIES = [key.verifying.public.hex() for key in HELPER_KEYS]
POLICY = Policy.model_validate_json(
    json.dumps(
        {
            "trusted_helpers": IDENTITIES[:2],
            "max_budget": {"epsilon": 8.0, "delta": 1e-6},
            "max_coalition": {"epsilon": 40.0, "delta": 1e-6},
            "min_k": 50,
            "min_helpers": 2,
        }
    )
)


def named(*identities):
    return [{"name": f"helper-{i}", "identity": identity} for i, identity in enumerate(identities)]


def training(**changes):
    return {**settings()["training"], **changes}


REFUSED = {
    "an untrusted helper": ({"helpers": named(IDENTITIES[0], IDENTITIES[2])}, UntrustedHelper),
    "a trusted name with another key": ({"helpers": named(IDENTITIES[2], IDENTITIES[1])}, UntrustedHelper),
    "k too small": ({"k": 49}, KTooSmall),
    "epsilon over the ceiling": ({"budget": {"epsilon": 8.1, "delta": 1e-6}}, BudgetOverCeiling),
    "a million as epsilon": ({"budget": {"epsilon": 1e6, "delta": 1e-6}}, BudgetOverCeiling),
    "delta over the ceiling": ({"budget": {"epsilon": 8.0, "delta": 1e-5}}, BudgetOverCeiling),
    "a coalition's epsilon": (
        {"training": training(coalition={"epsilon": 33.0, "delta": 1e-6})},
        BudgetOverCeiling,
    ),
    "a coalition's delta": (
        {"training": training(coalition={"epsilon": 32.0, "delta": 1e-5})},
        BudgetOverCeiling,
    ),
}


def test_a_document_within_the_policy_passes():
    POLICY.check(make())


@pytest.mark.parametrize("case", REFUSED)
def test_a_document_outside_the_policy_is_refused(case):
    changes, error = REFUSED[case]
    with pytest.raises(error) as caught:
        POLICY.check(make(**changes))
    assert type(caught.value) is error
    assert "ads.example" in str(caught.value)


def test_a_document_without_checks_is_refused_where_the_policy_wants_them():
    strict = POLICY.model_copy(update={"checked_reports": True})
    strict.check(make(checks="bits"))
    with pytest.raises(NotChecked, match=r"ads\.example declares no checks"):
        strict.check(make())


def without_noise(epsilon: float, tag: str = "clicks"):
    """A model of 4 features and one label whose sums are released without noise."""
    local = {"feature_noise": {"epsilon": 4.0, "sensitivity": 255.0}}
    local["randomised_response"] = {"epsilon": epsilon}
    return {
        "tag": tag,
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    } | local


def alone(*models, **changes):
    """With as much budget as to leave ε = 1 below the ceilings."""
    bare = {"fake_rate": 0.0, "decoys": [], "budget": {"epsilon": 7.0, "delta": 1e-6}}
    bare["training"] = training(coalition={"epsilon": 32.0, "delta": 1e-6})
    return make(**{**bare, "models": list(models), **changes})


def test_local_noise_counts_where_sums_have_no_other():
    POLICY.check(alone(without_noise(0.99)))
    with pytest.raises(BudgetOverCeiling, match=r"may cost \(8.01, .*1.01 of it for sums without noise"):
        POLICY.check(alone(without_noise(1.01)))
    with pytest.raises(BudgetOverCeiling, match="without noise"):
        POLICY.check(alone(without_noise(1e6)))


def test_local_noise_of_several_models_adds_up():
    with pytest.raises(BudgetOverCeiling, match=r"1\.2 of it"):
        POLICY.check(alone(without_noise(0.6), without_noise(0.6, "visits")))


def test_local_noise_counts_against_a_coalition_too():
    ceiling = training(coalition={"epsilon": 32.5, "delta": 1e-6})
    with pytest.raises(BudgetOverCeiling, match="coalition"):
        POLICY.check(alone(without_noise(0.6), training=ceiling))


def test_local_noise_under_sums_that_have_noise_costs_nothing_more():
    decoys = [{"tag": "clicks", "columns": "00" * 4}, {"keys": {"campaign": "spring", "place": 7}}]
    POLICY.check(make(models=[without_noise(1e6)], decoys=decoys))


LOCAL = {"fake_rate": 0.0, "decoys": [], "models": [without_noise(0.5)]}
UNEVEN = {"adserver": {"epsilon": 4.0, "delta": 3e-7}, "coalition": {"epsilon": 32.0, "delta": 1e-6}}
EVEN = {"adserver": {"epsilon": 4.0, "delta": 1e-6}, "coalition": {"epsilon": 4.0, "delta": 1e-6}}
SINGLE = {
    "sums": {"kind": "laplace", "noise_floor": 0.1},
    "moments": {"kind": "gaussian", "noise_floor": 0.1},
}
MODELS_ALONE = {"values": [], "decoys": [], "fake_rate": 0.0, "models": settings()["models"][:1]}
BOUNDED = {
    "both purposes": (make(), 40.0),
    "aggregation alone": (make(models=[], training=None, decoys=[], fake_rate=0.0), 8.0),
    "ceilings of nothing": (make(models=[], decoys=[], fake_rate=0.0), 8.0),
    "training alone": (make(values=[], decoys=[], fake_rate=0.0, models=[without_noise(0.5)]), 32.5),
    "labels that are randomised": (make(**LOCAL), 40.5),
    "a delta that is shared out": (make(training=UNEVEN), 40.0),
    "no sessions": (make(mechanisms=SINGLE), 8.0),
    "no sessions, a low ceiling": (make(mechanisms=SINGLE, training=EVEN, **MODELS_ALONE), 4.0),
}
"""Documents, and the ε that a source may cost a coalition under each."""


def dearest(document):
    """An account with the least noise that fits: training that hardly costs the ad server, then sums."""
    account, wishes = Account(document), list[tuple[str | None, SessionCharge | Charge]]()
    for tag in document.declared_models:
        delta = account.sessions_delta(tag)
        session = SessionCharge("gaussian", 1.0, 1e-8, 4, 4, delta) if delta else None
        wishes.append((tag, session or Charge("gaussian", 1.0, 1)))
    if document.values:
        wishes.append((None, Charge("laplace", 1.0, 1)))
    for stream, charge in wishes:
        entry = BudgetEntry(stream, (b"",), charge, str(stream).encode())
        noise = account.noise_that_fits(entry)
        if noise is not None:
            account.add([replace(entry, charge=replace(charge, noise=noise))])
    return account.spent()


@pytest.mark.parametrize("case", BOUNDED)
def test_no_account_under_an_accepted_document_costs_a_coalition_more(case):
    document, most = BOUNDED[case]
    bounded = {
        "max_budget": Budget(epsilon=9.0, delta=1e-6),
        "max_coalition": Budget(epsilon=most, delta=1e-6),
    }
    POLICY.model_copy(update=bounded).check(document)
    spent, local = dearest(document), randomised.epsilon(document)
    assert 0.99 * most < spent.coalition + local <= most
    assert spent.delta <= 1e-6
    less = bounded | {"max_coalition": Budget(epsilon=0.99 * most, delta=1e-6)}
    with pytest.raises(BudgetOverCeiling, match="coalition"):
        POLICY.model_copy(update=less).check(document)


def test_a_refusal_says_what_a_coalition_may_learn_for_what():
    ceiling = training(coalition={"epsilon": 40.0, "delta": 1e-6})
    with pytest.raises(BudgetOverCeiling) as caught:
        POLICY.check(alone(without_noise(0.5), training=ceiling))
    assert str(caught.value) == (
        "under ads.example's document a source may cost (47.5, 1e-06) against a coalition, 7 of it to "
        "aggregate, 40 of it to train, 0.5 of it for sums without noise over randomised records; "
        "the ceiling here is (40, 1e-06)"
    )


def test_too_few_helpers():
    careful = POLICY.model_copy(update={"min_helpers": 3})
    with pytest.raises(TooFewHelpers, match="names 2 helpers; 3 is the least"):
        careful.check(make())


def test_a_single_helper_is_no_document_at_all():
    with pytest.raises(InvalidDocument):
        make(helpers=named(IDENTITIES[0]))


MIN_FAKES = POLICY.model_copy(update={"min_fake_rate": 0.05})


@pytest.mark.parametrize(
    "passing",
    [make(), make(fake_rate=0.05)],
    ids=["more fakes", "as many"],
)
def test_a_policy_may_ask_for_fakes(passing):
    MIN_FAKES.check(passing)


@pytest.mark.parametrize(
    "refused",
    [
        make(fake_rate=0.049),
        make(fake_rate=0.0, decoys=[]),
        alone(without_noise(0.5), values=[], keys=[]),
    ],
    ids=["too few", "none", "sums without noise, which fakes would forbid"],
)
def test_a_document_with_fewer_fakes_than_the_policy_wants_is_refused(refused):
    POLICY.check(refused)
    with pytest.raises(TooFewFakes, match=r"ads\.example declares fake_rate = 0.*; 0\.05 is the least here"):
        MIN_FAKES.check(refused)
