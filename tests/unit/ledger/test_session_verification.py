"""Receipts of sessions as a third party sees them: a helper that bends one is found out."""

import json

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.sampling import Sampling
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.budget import Account
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import ReleaseReceipt, SignedReceipt
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, ChargedSessions, opening, question
from tests.unit.ledger.lying import rechained
from tests.unit.parameters import cases

DOCUMENT = cases.make(k=1)
SPARSE = cases.make(k=30)
OPENED, SECOND, CLOSED, RELEASED = 1, 2, 3, 4
"""Their places in the chain."""


def made(folder, document, sampling=None) -> list[SignedReceipt]:
    ledger, database, _ = ledgers.at(folder)
    ledgers.freeze(ledger, database, document, DATASETS[0], purpose=Purpose.TRAIN)
    sessions = ChargedSessions(ledger)
    noise = 30.0 if sampling else 6.0
    first, second = opening(1, sampling=sampling, noise=noise), opening(2, sampling=sampling, noise=noise)
    for asked in (first, second):
        sessions.open(document, asked)
    for step in range(15):
        sessions.claim_step("ads.example", first.request, step, bytes(32), first.engine)
    sessions.close(document, first.request)
    ledger.charge(document, question(9, noise=12.0, kind="gaussian", tag="clicks"))
    database.close()
    return ledgers.chain(ledger)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    return made(tmp_path_factory.mktemp("poisson"), DOCUMENT)


def verify(chain, document=DOCUMENT):
    return receipt_verification.verify(chain, "ads.example", "helper-0", [document])


@pytest.mark.parametrize(
    "sampling",
    [
        None,
        Sampling(kind="partition", batches=10, held_out=0.1),
        Sampling(kind="whole"),
        Sampling(kind="chosen"),
    ],
)
def test_an_honest_chain_holds_and_adds_up(tmp_path, sampling):
    found = verify(made(tmp_path, DOCUMENT, sampling))
    last = found.receipts[-1].balance
    spent = found.spent()[DOCUMENT.digest.hex()]
    assert spent.epsilon == pytest.approx(last.spent_epsilon)
    assert spent.coalition == pytest.approx(last.spent_coalition_epsilon)
    assert (spent.coalition > 1.5 * spent.epsilon) == (sampling is None)


def test_laplace_evaluations_beside_gaussian_gradients_add_up_over_the_same_records(tmp_path):
    """Each function has its own noise, and what both cost a source is one sum that anyone can check."""
    laplace = {"kind": "laplace", "noise_floor": 4.0}
    document = cases.make(k=1, mechanisms=cases.settings()["mechanisms"] | {"cells": laplace})
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, document, DATASETS[0], purpose=Purpose.TRAIN)
    first = opening(1, noise=6.0)
    opened = ChargedSessions(ledger).open(document, first).opened.balance
    evaluated = ledger.charge(document, question(9, noise=8.0, tag="clicks")).receipt.claimed()
    assert isinstance(evaluated, ReleaseReceipt)
    assert (evaluated.function, evaluated.charge.mechanism) == ("cells", "laplace")
    # One Laplace column of noise 8 costs 1 / 8 at most, on top of the session.
    assert 0.1 < evaluated.balance.spent_epsilon - opened.spent_epsilon <= 0.125
    ChargedSessions(ledger).close(document, first.request)
    chain = ledgers.chain(ledger)
    database.close()
    found = verify(chain, document)
    assert found.spent()[document.digest.hex()].epsilon == pytest.approx(
        found.receipts[-1].balance.spent_epsilon
    )
    for at, changes, says in (
        (2, {"charge__mechanism": "gaussian"}, "other noise"),
        (2, {"charge__noise": 3.0}, "other noise"),
        (2, {"function": "gradient"}, "other noise"),
        (2, {"function": "our_cells"}, "cannot be asked: .* no noise for our_cells"),
        (1, {"session_charge__mechanism": "laplace"}, "other noise"),
        (1, {"function": "cells"}, "other noise"),
        (1, {"function": "moments"}, "cannot be asked: .* no noise for moments"),
    ):
        with pytest.raises(BadReceipt, match=says):
            verify(rechained(chain, at, **changes), document)


def test_single_releases_of_both_kinds_are_charged_for_a_mixture_chosen_on_the_way(tmp_path):
    """An operator's own function has Gaussian noise, evaluations over the same records Laplace noise."""
    declared = cases.settings()["mechanisms"]
    mechanisms = {**declared, "cells": declared["sums"], "our_cells": declared["gradient"]}
    document = cases.make(k=1, mechanisms=mechanisms)
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, document, DATASETS[0], purpose=Purpose.TRAIN)
    ledger.charge(document, question(1, noise=8.0, tag="clicks"))
    ledger.charge(document, question(2, noise=8.0, kind="gaussian", tag="clicks", function="our_cells"))
    charges = [Charge("laplace", 8.0, 1), Charge("gaussian", 8.0, 1)]
    delta = Account(document).delta("clicks")
    spent = verify(ledgers.chain(ledger), document).spent()[document.digest.hex()]
    assert spent.epsilon == pytest.approx(accountant.epsilon(charges, delta, mixed=True))
    assert spent.epsilon > accountant.epsilon(charges, delta)
    database.close()


def test_without_sessions_all_of_a_models_delta_and_the_closed_form_are_for_its_releases(tmp_path):
    """Planners, ledgers and auditors find the same."""
    gaussian = cases.settings()["mechanisms"]["gradient"]
    mechanisms, budget = {"sums": gaussian, "moments": gaussian}, {"epsilon": 8.0, "delta": 2e-6}
    document = cases.make(k=1, mechanisms=mechanisms, budget=budget)
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, document, DATASETS[0], purpose=Purpose.TRAIN)
    asked = question(1, noise=8.0, kind="gaussian", tag="clicks", function="moments")
    charged = ledger.charge(document, asked)
    found = verify(ledgers.chain(ledger), document).spent()[document.digest.hex()]
    database.close()
    assert found.delta == 5e-7
    assert found.epsilon == found.coalition == accountant.epsilon([Charge("gaussian", 8.0, 1)], 5e-7)
    released = charged.receipt.claimed()
    assert isinstance(released, ReleaseReceipt)
    assert released.balance.spent_epsilon == found.epsilon


def test_a_chain_made_again_by_its_own_helper_holds(chain):
    assert len(verify(rechained(chain, 0)).receipts) == 5


@pytest.mark.parametrize(
    ("at", "changes", "says"),
    [
        (OPENED, {"session_charge__noise": 7.0}, "another cost"),
        (OPENED, {"session_charge__noise": 0.1}, "other noise"),
        (OPENED, {"session_charge__mechanism": "laplace"}, "other noise"),
        (OPENED, {"session_charge__rate": 0.01}, "another charge"),
        (OPENED, {"session_charge__steps": 20}, "another charge"),
        (OPENED, {"session_charge__batches": 3}, "another charge"),
        (OPENED, {"session_charge__delta": 2e-8}, "another cost"),
        (OPENED, {"session_charge__delta": 9e-7}, "exceeds the budget"),
        (OPENED, {"session_charge__noise": 0.5}, "another charge"),
        (OPENED, {"session_charge__noise": 0.5, "session_charge__batches": 40}, "exceeds the budget"),
        (OPENED, {"session_charge": None}, "without noise"),
        (OPENED, {"sampling__rate": 0.01}, "another charge"),
        (
            OPENED,
            {"sampling": {"kind": "whole", "rate": None, "batches": None, "held_out": 0.0}},
            "another charge",
        ),
        (OPENED, {"steps": 20}, "another charge"),
        (OPENED, {"balance__spent_epsilon": 0.1}, "another cost"),
        (OPENED, {"balance__spent_coalition_epsilon": 0.1}, "another cost"),
        (OPENED, {"balance__left_epsilon": 8.0}, "another cost"),
        (OPENED, {"balance__spent_delta": 1e-12}, "another cost"),
        (OPENED, {"tag": "made-up"}, "not declared"),
        (OPENED, {"datasets": [DATASETS[7].hex()]}, "not frozen"),
        (OPENED, {"datasets": [DATASETS[0].hex()] * 2}, "twice"),
        (OPENED, {"slots": [0, 0]}, "one slot for each"),
        (OPENED, {"slots": [2 << 24]}, "takes a slot"),
        (SECOND, {"slots": [1 << 24]}, "takes a slot"),
        (SECOND, {"slots": [(1 << 24) + 39]}, "takes a slot"),
        (SECOND, {"slots": [(1 << 24) - 39]}, "takes a slot"),
        (SECOND, {"request": opening(1).request.hex()}, "twice"),
        (CLOSED, {"request": opening(3).request.hex()}, "not open"),
        (CLOSED, {"used_steps": 41}, "another session"),
        (CLOSED, {"used_steps": 21}, "keeps less"),
        (CLOSED, {"still_charged__steps": 10, "still_charged__batches": 1}, "keeps less"),
        (CLOSED, {"still_charged__batches": 1}, "keeps less"),
        (CLOSED, {"still_charged": None}, "says nothing"),
        (CLOSED, {"session_charge": None}, "another session"),
        (CLOSED, {"session_charge__noise": 9.0}, "another session"),
        (CLOSED, {"balance__spent_epsilon": 0.1}, "another cost"),
        (CLOSED, {"balance__spent_coalition_epsilon": 0.1}, "another cost"),
        (RELEASED, {"balance__spent_coalition_epsilon": 0.1}, "another cost"),
        (RELEASED, {"request": opening(1).request.hex()}, "twice"),
    ],
)
def test_a_lying_helper_is_found_out(chain, at, changes, says):
    with pytest.raises(BadReceipt, match=says):
        verify(rechained(chain, at, **changes))


def test_a_session_is_closed_once(chain):
    again = json.loads(chain[CLOSED].receipt)
    again |= {"number": 5, "previous": chain[CLOSED].digest.hex()}
    signs = ledgers.Signs()
    bent = receipt.sign(receipt._RECEIPT.validate_json(json.dumps(again)), signs.key, signs.certificate)
    with pytest.raises(BadReceipt, match="not open"):
        verify([*chain[: CLOSED + 1], bent])


def test_amplification_that_batches_below_k_spoil_is_found_out(tmp_path):
    """1,000 records at 0.02 are 20 a batch: below k = 30 there is no hiding in it."""
    with pytest.raises(BadReceipt, match="below k"):
        verify(made(tmp_path, SPARSE), SPARSE)


def test_a_session_without_amplification_may_have_batches_below_k(tmp_path):
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, SPARSE, DATASETS[0], purpose=Purpose.TRAIN)
    asked = opening(1, records=1000, k=30, noise=6.0)
    charge = ledgers.session_charge(asked)
    assert charge.rate == 1.0
    assert charge.batches < charge.steps
    balance = ChargedSessions(ledger).open(SPARSE, asked).opened.balance
    assert balance.spent_epsilon == balance.spent_coalition_epsilon
    database.close()
    verify(ledgers.chain(ledger), SPARSE)


def test_a_session_without_noise_is_for_records_that_are_private_by_themselves(tmp_path):
    clicks, basket = cases.settings()["models"]
    labels = {"randomised_response": {"epsilon": 1.0}}
    both = labels | {"feature_noise": {"epsilon": 4.0, "sensitivity": 255.0}}
    bare = {"k": 1, "fake_rate": 0.0, "decoys": []}
    declared = cases.make(**bare, models=[clicks | both, basket])
    for number, (document, tag, holds) in enumerate(
        (
            (declared, "clicks", True),
            (declared, "basket", False),
            (cases.make(**bare, models=[clicks | labels, basket]), "clicks", False),
            (cases.make(k=1, models=[clicks | both, basket]), "clicks", False),  # with fakes
            (DOCUMENT, "clicks", False),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger, database, _ = ledgers.at(folder)
        ledgers.freeze(ledger, database, document, DATASETS[0], purpose=Purpose.TRAIN)
        sessions, asked = ChargedSessions(ledger), opening(1, charged=False, tag=tag)
        sessions.open(document, asked)
        sessions.close(document, asked.request)
        database.close()
        if holds:
            found = verify(ledgers.chain(ledger), document)
            assert found.spent()[document.digest.hex()].epsilon == 0
            assert found.local() == {document.digest.hex(): 1.0}
        else:
            with pytest.raises(BadReceipt, match="without noise"):
                verify(ledgers.chain(ledger), document)


@pytest.mark.parametrize("at", [OPENED, CLOSED])
def test_a_flipped_bit_in_every_byte_of_a_receipt_is_noticed(chain, at):
    data = chain[at].encode()
    for place in range(0, len(data), 3):
        bent = bytearray(data)
        bent[place] ^= 1 << (place % 7)
        try:
            signed = receipt.decode(bytes(bent))
            verify([*chain[:at], signed, *chain[at + 1 :]])
        except MaskedLarkError:
            continue
        assert signed == chain[at], f"byte {place} changed and nobody noticed"
