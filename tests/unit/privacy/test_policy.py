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


def test_too_few_helpers():
    careful = POLICY.model_copy(update={"least_helpers": 3})
    with pytest.raises(TooFewHelpers, match="names 2 helpers; 3 is the least"):
        careful.check(make())


def test_a_single_helper_is_no_document_at_all():
    with pytest.raises(InvalidDocument):
        make(helpers=named(IDENTITIES[0]))
