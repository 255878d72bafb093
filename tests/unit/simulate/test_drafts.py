import tomllib
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.features import Encoder
from maskedlark.features.csv_file import read_csv
from maskedlark.fitting import recipe as fit_recipe
from maskedlark.ledger.budget import SESSIONS, Account, BudgetEntry
from maskedlark.ledger.errors import DeltaExhausted
from maskedlark.parameters.document import Document
from maskedlark.parameters.drafting import draft
from maskedlark.simulate import drafts
from maskedlark.simulate.errors import BadSimulation
from maskedlark.simulate.users import ColumnRoles, read_users
from maskedlark.training import from_recipe, gradient_bound, recipe
from maskedlark.training import plan as plans
from maskedlark.training.centring import SCALE as CENTRED
from maskedlark.training.plan import PrivacyTarget
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, make


def people(count=200, names=("spring", "winter")):
    rng = np.random.default_rng(3)
    return {
        "campaign": rng.choice(names, count).tolist(),
        "age": rng.integers(18, 80, count).tolist(),
        "bought": [0, 1] * (count // 2),
        "a value": rng.integers(0, 5, count).tolist(),
    }


def document(table, values, label, said, keys=("campaign",), tag="A model"):
    made = read_users(table, ColumnRoles(tuple(keys), values, label))
    text = drafts.settings(made, values, label, tag, said)
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
    assert drafts.chosen(size, given, 8.0, 0.2).k == k


@pytest.mark.parametrize(("size", "delta"), [(100, 1e-5), (10_000, 1e-5), (50_000, 1e-6), (1_000_000, 1e-7)])
def test_delta_is_small_beside_the_crowd(size, delta):
    assert drafts.chosen(size, None, 8.0, 0.2).delta == pytest.approx(delta)


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
    with pytest.raises(BadSimulation, match=said):
        drafts.chosen(size, **options)


def test_what_is_declared_is_a_document():
    said = drafts.chosen(200, None, 8.0, 0.2)
    found = document(people(), {"a value": (0, 5)}, "bought", said)
    assert (found.k, found.keys, found.fake_rate) == (20, ("campaign",), 0.2)
    assert [(each.name, each.low, each.high) for each in found.values] == [("a value", 0, 5)]
    assert found.models[0].tag == "A model"
    assert found.models[0].labels[0].value is None
    assert {*found.mechanisms} == {"sums", "moments", "gradient", "cells"}
    assert {each.keys["campaign"] for each in found.decoys if each.keys} == {"spring", "winter"}


def test_a_label_that_is_a_value_is_taken_from_it():
    said = drafts.chosen(200, None, 8.0, 0.2)
    found = document(people(), {"bought": (0, 1)}, "bought", said)
    assert found.models[0].labels[0].value == "bought"


def test_one_purpose_is_enough():
    said = drafts.chosen(200, None, 8.0, 0.2)
    assert not document(people(), {"bought": (0, 1)}, None, said, keys=()).models
    assert not document(people(), {}, "bought", said, keys=()).values


def test_a_decoy_shows_no_key_that_few_have():
    table = people(names=('"rare"\n\x7f', "winter"))
    table["campaign"][:] = ["winter"] * 190 + ['"rare"\n\x7f'] * 10
    said = drafts.chosen(200, None, 8.0, 0.2)
    found = document(table, {"bought": (0, 1)}, None, said)
    assert [each.keys for each in found.decoys] == [{"campaign": "winter"}]
    alone = {**table, "campaign": [f"c{place}" for place in range(200)]}
    assert [each.keys for each in document(alone, {"bought": (0, 1)}, None, said).decoys] == [
        {"campaign": "other"}
    ]


@pytest.mark.parametrize("text", ['"rare"\n\x7f', "ü\\", "\t"])
def test_any_text_is_a_text_of_toml(text):
    assert tomllib.loads(f"x = {drafts._toml(text)}") == {"x": text}


def trained(k: int) -> Document:
    ceiling = {"epsilon": 6.0, "delta": 2e-5}
    return make(
        k=k,
        budget={"epsilon": 8.0, "delta": 2e-5},
        training={"adserver": ceiling, "coalition": {"epsilon": 40.0, "delta": 2e-5}},
        decoys=[],
        fake_rate=0.0,
    )


def users():
    return read_users(people(), ColumnRoles(("campaign",), {"a value": (0, 5)}, "bought"))


@pytest.mark.parametrize(
    ("records", "k", "drawn"),
    [
        (3600, 100, {"sampling_rate": 0.5}),
        (100_000, 100, {"sampling_rate": 0.1}),
        (120, 100, {"sampling": "whole"}),
    ],
)
def test_the_recipes_can_be_read_and_suit_the_crowd(tmp_path, records, k, drawn):
    made = trained(k)
    tag = made.models[0].tag
    drafts.write_files(tmp_path, made, tag, records, users())
    found, account = recipe.read(tmp_path / "train.toml"), Account(made)
    assert (found.tag, found.datasets, found.epsilon, found.delta) == (
        tag,
        ("trained",),
        1.0,
        account.default_session_delta(tag),
    )
    assert {name: getattr(found, name) for name in drawn} == drawn
    fit = fit_recipe.read(tmp_path / "run.toml")
    assert (fit.tag, fit.datasets, fit.epsilon, fit.model) == (tag, ("trained",), 1.0, "logistic")
    assert found.adserver == fit.adserver == tmp_path / "adserver.toml"
    assert found.encoder == fit.encoder == tmp_path / "encoder.json"
    assert found.table == fit.table == tmp_path / "people.csv"
    assert fit_recipe.is_fit(tmp_path / "run.toml")
    assert not fit_recipe.is_fit(tmp_path / "train.toml")


def test_the_ad_servers_table_has_the_features_and_no_label(tmp_path):
    made = trained(100)
    drafts.write_files(tmp_path, made, made.models[0].tag, 3600, users())
    table = read_csv(tmp_path / "people.csv")
    assert [*table] == ["campaign", "age"]
    assert (Encoder.load(tmp_path / "encoder.json").encode(table) == users().features).all()


def test_what_its_user_has_changed_stays(tmp_path):
    for name in ("model.py", "run.toml"):
        (tmp_path / name).write_text("mine")
    made = trained(100)
    drafts.write_files(tmp_path, made, made.models[0].tag, 3600, users())
    assert [(tmp_path / name).read_text() for name in ("model.py", "run.toml")] == ["mine"] * 2
    assert (tmp_path / "train.toml").exists()


def test_what_a_simulation_suggests_fits_its_budget_all_of_it_twice():
    """Two queries at ε = 1, a fit, two runs, and two evaluations of each with the least noise."""
    made = document(people(), {"a value": (0, 5)}, "bought", drafts.chosen(200, None, 8.0, 0.2))
    assert made.training is not None
    account, ceiling, tag = Account(made), made.training.adserver.epsilon, made.models[0].tag
    floors = {name: each.noise_floor for name, each in made.mechanisms.items()}
    fit = accountant.noise_for("gaussian", 1, ceiling * drafts.FIT_PART, account.delta(tag), mixed=True)
    assert fit > floors["moments"]
    measured, trained = (b"m" * 32,), (b"t" * 32,)
    delta, target = account.default_session_delta(tag), PrivacyTarget(epsilon=ceiling * drafts.TRAIN_PART)
    run = plans.session_charge(made, tag, plans.drawn(rate=0.5), drafts.STEPS, target, 3600)
    assert run is not None
    assert run.delta == delta
    entries = [
        *[BudgetEntry(None, measured, Charge("laplace", 2.0, 2))] * 2,
        BudgetEntry(tag, trained, Charge("gaussian", fit, 1)),
        *[BudgetEntry(tag, trained, Charge("laplace", 2.0, 1))] * 4,
        *[BudgetEntry(tag, trained, run, bytes([place])) for place in range(2)],
    ]
    for entry in entries:
        assert account.fits(entry), account.refusal(entry)
        account.add([entry])


def test_small_runs_find_room_for_as_many_as_share_the_delta():
    made = document(people(), {}, "bought", drafts.chosen(200, None, 8.0, 0.2))
    account, tag = Account(made), made.models[0].tag
    target, whole = PrivacyTarget(epsilon=0.25), plans.drawn(kind="whole")
    charge = plans.session_charge(made, tag, whole, 10, target, 3600)
    assert charge is not None
    for place in range(SESSIONS):
        entry = BudgetEntry(tag, (b"t" * 32,), charge, bytes([place]))
        assert account.fits(entry)
        account.add([entry])
    assert isinstance(account.refusal(BudgetEntry(tag, (b"t" * 32,), charge, b"one more")), DeltaExhausted)


def test_a_draft_names_the_encoder_of_its_features():
    made = document(people(), {}, "bought", drafts.chosen(200, None, 8.0, 0.2))
    same = read_users(people(), ColumnRoles(("campaign",), {}, "bought"))
    assert same.encoder is not None
    assert made.trained("A model").encoder == same.encoder.digest.hex()


def test_psi_follows_from_the_rows_unless_it_is_given():
    made = read_users(people(), ColumnRoles(("campaign",), {}, "bought"))
    assert made.features is not None
    lengths = np.sqrt(1 + np.square(made.features / 256).sum(axis=1))
    assert drafts.row_length(made.features) == pytest.approx(np.median(lengths), rel=0.05)
    said = drafts.chosen(200, None, 8.0, 0.2)
    found = document(people(), {}, "bought", said).trained("A model")
    assert found.gradient_bound == drafts.row_length(made.features)
    given = drafts.chosen(200, None, 8.0, 0.2, psi=0.25)
    assert document(people(), {}, "bought", given).trained("A model").gradient_bound == 0.25
    for psi in (0.0, 1e-9, 2000.0, float("nan")):
        with pytest.raises(BadSimulation, match="bound on gradients is from"):
            drafts.chosen(200, None, 8.0, 0.2, psi=psi)


def test_longer_rows_and_more_noise_have_a_lower_learning_rate():
    made = trained(100)
    short, long = np.zeros((9, 4), np.uint8), np.full((9, 4), 255, np.uint8)

    def rate(rows, records, epsilon=2.0):
        return drafts._learning_rate(made, rows, 0.5, records, epsilon, 1e-5)

    assert rate(short, 1_000_000) == rate(long, 1_000_000) == 16
    assert rate(short, 100) == 2
    assert 2 < rate(short, 1000) < rate(short, 1000, epsilon=4.0) < 16
    assert drafts.row_length(short) == 1
    assert drafts.row_length(long) == pytest.approx(np.sqrt(1 + 4 * (255 / 256) ** 2), rel=0.05)


def test_a_model_that_centres_its_rows_has_a_bound_and_a_rate_for_them(tmp_path):
    made, rows = users(), users().features
    assert rows is not None
    centre = drafts.chosen(200, None, 8.0, 0.2, centre=True)
    declared = document(people(), {"a value": (0, 5)}, "bought", centre)
    bound = declared.trained("A model").gradient_bound
    drafts.write_files(tmp_path, declared, "A model", 3600, made, centre=True)
    found = recipe.read(tmp_path / "train.toml")
    model = from_recipe.model(found)
    first, last = model.children()
    assert CENTRED == drafts.CENTRED_SCALE
    assert not any(each.requires_grad for each in first.parameters())
    assert all(each.requires_grad and not each.any() for each in last.parameters())
    assert gradient_bound(model, "bce", rows) == pytest.approx(bound, rel=0.02)
    assert bound / drafts.CENTRED_SCALE < drafts.row_length(rows)
    plain = tmp_path / "plain"
    drafts.write_files(plain, declared, "A model", 3600, made)
    ratio = found.optimizer["lr"] / recipe.read(plain / "train.toml").optimizer["lr"]
    assert ratio == pytest.approx((drafts.row_length(rows) / bound) ** 2, rel=0.1)


def test_a_model_that_its_user_makes_a_network_still_learns(tmp_path):
    """What the draft sets to 0 is its last layer: a network of zeros has no gradient but its last bias's."""
    declared = document(people(), {}, "bought", drafts.chosen(200, None, 8.0, 0.2))
    drafts.write_files(tmp_path, declared, "A model", 3600, users())
    text, width = (tmp_path / "model.py").read_text(), declared.trained("A model").features
    one = f"nn.Linear({width}, 1)"
    assert one in text
    names: dict[str, object] = {}
    exec(text.replace(one, f"nn.Linear({width}, 4), nn.ReLU(), nn.Linear(4, 1)"), names)
    build = cast(Callable[[], torch.nn.Sequential], names["build"])
    model, rows = build(), torch.rand(50, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        (model(rows) - 1).square().mean().backward()
        optimizer.step()
    hidden = next(iter(model.parameters())).grad
    assert hidden is not None
    assert hidden.abs().max() > 0


def test_delta_can_be_chosen_and_half_of_it_is_for_sessions():
    made = document(people(), {}, "bought", drafts.chosen(200, None, 8.0, 0.2, delta=4e-6))
    assert made.budget.delta == 4e-6
    assert Account(made).sessions_delta(made.models[0].tag) == 2e-6
    for delta in (0.0, 2e-3):
        with pytest.raises(BadSimulation, match=r"more than 0, at most 0\.001"):
            drafts.chosen(200, None, 8.0, 0.2, delta=delta)
