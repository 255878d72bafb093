import pytest

from maskedlark.core.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("campain", ["campaign", "place"], "did you mean 'campaign'? There are campaign, place"),
        ("CAMPAIGN", ["campaign"], "did you mean 'campaign'? There are campaign"),
        ("zzz", ["campaign", "place"], "there are campaign, place"),
        ("zzz", [], "there are none"),
    ],
)
def test_a_near_name_is_suggested_and_all_are_listed(name, known, said):
    assert did_you_mean(name, known) == said


def test_the_caller_says_what_the_list_is_of():
    assert did_you_mean("ab", ["abc"], "declared are") == "did you mean 'abc'? Declared are abc"
