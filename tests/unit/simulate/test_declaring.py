import tomllib

import numpy as np
import pytest

from maskedlark.features import Boolean, Encoder, Hashed, OneHot, Scaled
from maskedlark.parameters.drafting import draft
from maskedlark.simulate import declaring
from maskedlark.simulate.crowd import Wanted, crowd
from maskedlark.simulate.errors import BadScene
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY


def people(count=200, names=("spring", "winter")):
    rng = np.random.default_rng(3)
    return {
        "campaign": rng.choice(names, count).tolist(),
        "age": rng.integers(18, 80, count).tolist(),
        "bought": [0, 1] * (count // 2),
        "a value": rng.integers(0, 5, count).tolist(),
    }


def document(table, values, label, said, keys=("campaign",), tag="A model"):
    made = crowd(table, Wanted(tuple(keys), values, label))
    text = declaring.settings(made, values, label, tag, said)
    helpers = "\n".join(
        f'"helper-{place}" = "{key.verifying.public.hex()}"' for place, key in enumerate(HELPER_KEYS[:2])
    )
    whole = f'origin = "ads.example"\n{text}\n[helpers]\n{helpers}\n'
    return draft(whole, DOCUMENT_KEY.verifying, REQUEST_KEY.verifying, None, 1_900_000_000)


@pytest.mark.parametrize(
    ("size", "given", "k"),
    [(100_000, None, 100), (1000, None, 100), (500, None, 50), (30, None, 10), (30, 5, 5)],
)
def test_k_follows_the_size_unless_it_is_given(size, given, k):
    assert declaring.chosen(size, given, 8.0, 0.2).k == k


@pytest.mark.parametrize(("size", "delta"), [(100, 1e-5), (10_000, 1e-5), (50_000, 1e-6), (1_000_000, 1e-7)])
def test_delta_is_small_beside_the_crowd(size, delta):
    assert declaring.chosen(size, None, 8.0, 0.2).delta == pytest.approx(delta)


@pytest.mark.parametrize(
    ("size", "given", "said"),
    [
        (60, {"k": 100}, "60 rows, fewer than k = 100"),
        (9, {}, "9 rows, fewer than k = 10"),
        (500, {"epsilon": 0.0}, "more than 0, at most 100"),
        (500, {"epsilon": 101.0}, "more than 0, at most 100"),
        (500, {"fake_rate": 1.5}, "from 0 to 1"),
    ],
)
def test_what_nobody_could_ask_is_refused(size, given, said):
    options = {"k": None, "epsilon": 8.0, "fake_rate": 0.2, **given}
    with pytest.raises(BadScene, match=said):
        declaring.chosen(size, **options)


def test_what_is_declared_is_a_document():
    said = declaring.chosen(200, None, 8.0, 0.2)
    found = document(people(), {"a value": (0, 5)}, "bought", said)
    assert (found.k, found.keys, found.fake_rate) == (20, ("campaign",), 0.2)
    assert [(each.name, each.low, each.high) for each in found.values] == [("a value", 0, 5)]
    assert found.models[0].tag == "A model"
    assert found.models[0].labels[0].of is None
    assert {each.keys["campaign"] for each in found.decoys if each.keys} == {"spring", "winter"}


def test_a_label_that_is_a_value_is_taken_from_it():
    said = declaring.chosen(200, None, 8.0, 0.2)
    found = document(people(), {"bought": (0, 1)}, "bought", said)
    assert found.models[0].labels[0].of == "bought"


def test_one_purpose_is_enough():
    said = declaring.chosen(200, None, 8.0, 0.2)
    assert not document(people(), {"bought": (0, 1)}, None, said, keys=()).models
    assert not document(people(), {}, "bought", said, keys=()).values


def test_a_decoy_shows_no_key_that_few_have():
    table = people(names=('"rare"\n\x7f', "winter"))
    table["campaign"][:] = ["winter"] * 190 + ['"rare"\n\x7f'] * 10
    said = declaring.chosen(200, None, 8.0, 0.2)
    found = document(table, {"bought": (0, 1)}, None, said)
    assert [each.keys for each in found.decoys] == [{"campaign": "winter"}]
    alone = {**table, "campaign": [f"c{place}" for place in range(200)]}
    assert [each.keys for each in document(alone, {"bought": (0, 1)}, None, said).decoys] == [
        {"campaign": "other"}
    ]


@pytest.mark.parametrize("text", ['"rare"\n\x7f', "ü\\", "\t"])
def test_any_text_is_a_text_of_toml(text):
    assert tomllib.loads(f"x = {declaring._toml(text)}") == {"x": text}


def test_people_who_are_made_up_are_like_the_others_and_always_the_same():
    table = {
        "age": list(range(18, 118)),
        "device": ["phone", "desktop"] * 50,
        "member": [True, False] * 50,
        "shop": [f"shop {place}" for place in range(100)],
    }
    kinds = {"age": Scaled(18, 117), "device": OneHot(), "member": Boolean(), "shop": Hashed(8)}
    encoder = Encoder.fit(table, kinds)
    rows = declaring.made_up(encoder)
    assert 1 < len(rows) <= declaring.DECOYS
    assert np.array_equal(rows, declaring.made_up(encoder))
    names = encoder.names
    assert not rows[:, names.index("device is other")].any()
    assert (np.count_nonzero(rows[:, [i for i, n in enumerate(names) if "bucket" in n]], axis=1) == 1).all()
