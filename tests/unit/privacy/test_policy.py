"""What a browser or helper refuses although the origin signed it: each with an error of its own."""

import json

import pytest

from maskedlark.errors import BudgetOverCeiling, InvalidDocument, KTooSmall, TooFewHelpers, UntrustedHelper
from maskedlark.privacy.policy import Policy
from tests.unit.privacy.cases import HELPER_KEYS, make, settings

IDENTITIES = [key.verifying.public.hex() for key in HELPER_KEYS]
POLICY = Policy.model_validate_json(
    json.dumps(
        {
            "trusted_helpers": IDENTITIES[:2],
            "most": {"epsilon": 8.0, "delta": 1e-6},
            "most_coalition": {"epsilon": 40.0, "delta": 1e-6},
            "least_k": 50,
            "least_helpers": 2,
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
        {"training": training(coalition={"epsilon": 41.0, "delta": 1e-6})},
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


def without_noise(epsilon: float, tag: str = "clicks"):
    """A model of 4 features and one label whose sums are released without noise."""
    local = {"feature_noise": {"epsilon": 4.0, "sensitivity": 255.0}}
    local["randomised_response"] = {"epsilon": epsilon}
    return {"tag": tag, "features": 4, "labels": [{"kind": "binary"}], "gradient_bound": 1.0} | local


def alone(*models, **changes):
    """With as much budget as to leave ε = 1 below the ceilings."""
    bare = {"fake_rate": 0.0, "decoys": [], "budget": {"epsilon": 7.0, "delta": 1e-6}}
    bare["training"] = training(coalition={"epsilon": 39.0, "delta": 1e-6})
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
    ceiling = training(coalition={"epsilon": 39.5, "delta": 1e-6})
    with pytest.raises(BudgetOverCeiling, match="coalition"):
        POLICY.check(alone(without_noise(0.6), training=ceiling))


def test_local_noise_under_sums_that_have_noise_costs_nothing_more():
    decoys = [{"tag": "clicks", "features": "00" * 4}, {"keys": {"campaign": "spring", "place": 7}}]
    POLICY.check(make(models=[without_noise(1e6)], decoys=decoys))


def test_too_few_helpers():
    careful = POLICY.model_copy(update={"least_helpers": 3})
    with pytest.raises(TooFewHelpers, match="names 2 helpers; 3 is the least"):
        careful.check(make())


def test_a_single_helper_is_no_document_at_all():
    with pytest.raises(InvalidDocument):
        make(helpers=named(IDENTITIES[0]))
