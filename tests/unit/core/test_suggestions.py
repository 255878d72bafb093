import pytest

from maskedlark.core.suggestions import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("campain", ["campaign", "place"], "did you mean 'campaign'? There are campaign, place"),
        ("coer", ["core", "cost"], "did you mean 'core'? There are core, cost"),
        ("CAMPAIGN", ["campaign"], "did you mean 'campaign'? There are campaign"),
        ("ege", ["age", "place"], "did you mean 'age'? There are age, place"),
        ("zzz", ["campaign", "place"], "there are campaign, place"),
        ("zzz", [], "there are none"),
    ],
)
def test_a_near_name_is_suggested_and_all_are_listed(name, known, said):
    assert did_you_mean(name, known) == said


def test_the_caller_says_what_the_list_is_of():
    assert did_you_mean("ab", ["abc"], "declared are") == "did you mean 'abc'? Declared are abc"


COLUMNS = ["age", "education", "job", "month"]


@pytest.mark.parametrize("meant", ["duration", "Duration", "visit_duration", "seconds of duration"])
def test_a_misspelt_word_finds_the_name_that_has_it(meant):
    assert nearest("durration", [*COLUMNS, meant]) == meant


def test_of_equal_words_the_more_similar_name_is_meant():
    assert nearest("duratoin", ["duration_of_call", "duration"]) == "duration"


def test_what_is_not_near_is_not_suggested():
    assert nearest("xyz", COLUMNS) is None
    assert nearest("durration", COLUMNS) is None
    assert nearest("duration", COLUMNS) is None
    assert nearest("xyz", []) is None
