"""Plain words must not promise more than holds."""

from maskedlark.parameters.meaning import meaning
from tests.unit.parameters.cases import make


def model(tag, **changes):
    return {
        "tag": tag,
        "columns": [{"kind": "bytes", "count": 2}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
        **changes,
    }


def local(*models):
    found = meaning(make(models=models, decoys=[], fake_rate=0.0))
    return [words for topic, words in found if topic == "local DP"]


RESPONSE = {"randomised_response": {"epsilon": 1.0}}
NOISE = {"feature_noise": {"epsilon": 0.5, "sensitivity": 51.0}}


def test_a_source_with_several_tags_costs_their_sum():
    last = local(model("a", **RESPONSE, **NOISE), model("b", **RESPONSE, **NOISE))[-1]
    assert "a source with several tags costs the sum over its tags" in last
    assert "With all 2: ε = 2 for features; ε = 10 for features if any byte" in last
    assert last.endswith("ε = 2 for labels; ε = 4 for features and labels")


def test_a_tag_without_noise_leaves_no_bound():
    last = local(model("a", **RESPONSE), model("b", **NOISE))[-1]
    assert last.count("no bound for") == 4


def test_one_tag_or_none_with_noise_has_no_sum():
    assert not any("several tags" in words for words in local(model("a", **RESPONSE)))
    assert not any("several tags" in words for words in local(model("a"), model("b")))


def coalition(**changes):
    return [words for topic, words in meaning(make(**changes)) if topic == "coalition"]


def test_what_a_source_may_cost_a_coalition_is_the_sum_of_all_purposes():
    (words,) = coalition()
    assert "at most (ε, δ) = (40, 1e-06) against the ad server with all helpers but one" in words
    assert "8 of it to aggregate, 32 of it to train" in words
    (words,) = coalition(models=[], training=None, decoys=[], fake_rate=0.0)
    assert "(8, 1e-06)" in words
    (words,) = coalition(models=[model("a", **RESPONSE, **NOISE)], decoys=[], fake_rate=0.0)
    assert "(41, 1e-06)" in words
    assert "1 of it for sums without noise" in words


def test_without_checks_a_report_may_add_any_number():
    (words,) = [words for topic, words in meaning(make()) if topic == "checks"]
    assert words.startswith("none: ")
    assert "a report may add any number" in words
    (words,) = [words for topic, words in meaning(make(checks="bits")) if topic == "checks"]
    assert "helpers drop those that do not" in words
    assert "may still lie" in words


def test_noise_on_byte_features_promises_nothing_about_categories():
    columns = [{"kind": "bytes", "count": 2}, {"kind": "category", "size": 7}]
    columns.append({"kind": "bag", "size": 9, "length": 3})
    mixed = model("a", columns=columns, **NOISE, **RESPONSE)
    found = meaning(make(models=[mixed], decoys=[], fake_rate=0.0))
    assert "a: 2 byte features, a category of 7, 3 categories of 9, binary" in dict(found)["model"]
    first, second = local(mixed)
    assert "ε = 0.5 for each of 2 byte features, changing by up to 51; helpers see the categories" in first
    assert second == "a: ε = 1 for all its labels of a source together"
