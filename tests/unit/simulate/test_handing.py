import pytest

from maskedlark.parameters.document import Document
from maskedlark.simulate import handing
from maskedlark.training import recipe
from tests.unit.parameters.cases import make


def document(k: int) -> Document:
    ceiling = {"epsilon": 6.0, "delta": 2e-5}
    return make(
        k=k,
        budget={"epsilon": 8.0, "delta": 2e-5},
        training={"adserver": ceiling, "coalition": {"epsilon": 40.0, "delta": 2e-5}},
        decoys=[],
        fake_rate=0.0,
    )


@pytest.mark.parametrize(
    ("records", "k", "drawn"),
    [
        (3600, 100, {"sampling_rate": 0.5, "held_out": 0.2}),
        (100_000, 100, {"sampling_rate": 0.1, "held_out": 0.2}),
        (120, 100, {"sampling": "whole", "held_out": 0.0}),
    ],
)
def test_the_recipe_can_be_read_and_suits_the_crowd(tmp_path, records, k, drawn):
    made = document(k)
    tag = made.models[0].tag
    handing.hand_over(tmp_path, made, tag, records, 1e-5, "the encoder")
    found = recipe.read(tmp_path / "run.toml")
    assert (found.tag, found.datasets, found.epsilon, found.delta) == (tag, ("trained",), 2.0, 1e-5)
    assert found.adserver == tmp_path / "adserver.toml"
    assert {name: getattr(found, name) for name in drawn} == drawn
    assert (tmp_path / "encoder.json").read_text() == "the encoder"


def test_what_its_user_has_changed_stays(tmp_path):
    (tmp_path / "model.py").write_text("mine")
    made = document(100)
    handing.hand_over(tmp_path, made, made.models[0].tag, 3600, 1e-5, "")
    assert (tmp_path / "model.py").read_text() == "mine"
    assert (tmp_path / "run.toml").exists()
