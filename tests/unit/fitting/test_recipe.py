import inspect

import pytest

from maskedlark.fitting import LogisticRegression, recipe
from maskedlark.web.errors import BadConfig

LEAST = """
adserver = "adserver.toml"
tag = "visits"
table = "people.csv"
encoder = "encoder.json"
out = "model.json"
"""


def read(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    return recipe.read(tmp_path / "run.toml")


def test_what_is_left_out_is_as_the_estimators_have_it(tmp_path):
    found = read(tmp_path, LEAST)
    assert (found.model, found.table) == ("logistic", tmp_path / "people.csv")
    parameters = inspect.signature(LogisticRegression).parameters
    assert found.fitting.keys() == parameters.keys() - {"client", "encoder"}
    given = {name: each.default for name, each in parameters.items() if name in found.fitting}
    assert found.fitting == given | {"tag": "visits"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("epsilon = 0.0", "epsilon: Input should be greater than 0. Write what it may cost: epsilon = 1.0"),
        ("noise = inf", "noise: "),
        ("steps = 3", "steps is not known; "),
        ('map = "forest"', "map: Input should be 'auto', 'columns', 'buckets', 'trees' or 'random'"),
        ("seed = -1", "seed: "),
    ],
)
def test_a_mistake_says_what_to_write(tmp_path, line, said):
    with pytest.raises(BadConfig, match=said):
        read(tmp_path, LEAST + line)


def test_a_recipe_of_a_fit_has_a_table(tmp_path):
    read(tmp_path, LEAST)
    assert recipe.is_fit(tmp_path / "run.toml")
    for text in (LEAST.replace("table", "model"), "table = ", "x = " + "[" * 5000):
        (tmp_path / "run.toml").write_text(text)
        assert not recipe.is_fit(tmp_path / "run.toml")
    assert not recipe.is_fit(tmp_path / "nothing.toml")
