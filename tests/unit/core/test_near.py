import pytest

from maskedlark.core.near import instead


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
    assert instead(name, known) == said


def test_the_caller_says_what_the_list_is_of():
    assert instead("ab", ["abc"], "declared are") == "did you mean 'abc'? Declared are abc"
