"""Receipts as a third party sees them: from public documents alone, and nothing can be bent."""

import json

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import (
    Certificate,
    CheckKeyReceipt,
    FrozenReceipt,
    ReleaseReceipt,
    SignedReceipt,
    certify,
)
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, Signs, question
from tests.unit.ledger.lying import rechained, resigned
from tests.unit.parameters import cases

DOCUMENT = cases.make(k=1)


@pytest.fixture
def chain(tmp_path) -> list[SignedReceipt]:
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, *DATASETS[:2])
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[2], purpose=Purpose.TRAIN)
    ledger.charge(DOCUMENT, question(1))
    ledger.charge(DOCUMENT, question(2, DATASETS[0], DATASETS[1], noise=1.0, columns=2))
    ledger.charge(DOCUMENT, question(3, DATASETS[2], noise=8.0, kind="gaussian", tag="clicks"))
    found = ledgers.chain(ledger)
    database.close()
    return found


def verify(chain, documents=(DOCUMENT,), origin="ads.example", helper="helper-0"):
    return receipt_verification.verify(chain, origin, helper, documents)


def test_an_honest_chain_holds_and_adds_up(chain):
    found = verify(chain)
    assert [each.number for each in found.receipts] == [1, 2, 3, 4, 5, 6]
    spent = found.spent()[DOCUMENT.digest.hex()]
    last = found.receipts[-1]
    assert isinstance(last, ReleaseReceipt)
    # 1/2 + 2/1 to aggregate (the dearest dataset), and the model's on top.
    assert spent.epsilon == pytest.approx(last.balance.spent_epsilon)
    assert 2.5 < spent.epsilon < 4
    assert spent.delta <= DOCUMENT.budget.delta


def test_a_chain_made_again_by_its_own_helper_holds(chain):
    assert len(verify(rechained(chain, 0)).receipts) == 6


@pytest.mark.parametrize("at", range(6))
def test_a_receipt_left_out_is_noticed_but_for_the_last(chain, at):
    without = chain[:at] + chain[at + 1 :]
    if at == 5:  # A chain that ends early is an honest chain of an earlier moment.
        verify(without)
        return
    with pytest.raises(BadReceipt, match="does not follow"):
        verify(without)


@pytest.mark.parametrize(
    ("at", "changes", "says"),
    [
        (3, {"charge__noise": 4.0}, "another cost"),
        (3, {"charge__noise": 0.5}, "other noise than its document declares"),
        (3, {"charge__mechanism": "gaussian"}, "other noise"),
        (3, {"charge__columns": 2}, "another cost"),
        (3, {"balance__charged_epsilon": 0.1}, "another cost"),
        (3, {"balance__spent_epsilon": 0.1}, "another cost"),
        (3, {"balance__left_epsilon": 8.0}, "another cost"),
        (4, {"datasets": [DATASETS[0].hex()]}, None),
        (4, {"datasets": [DATASETS[0].hex(), DATASETS[0].hex()]}, "twice"),
        (4, {"datasets": [DATASETS[7].hex()]}, "not frozen"),
        (4, {"request": (1).to_bytes(16, "big").hex()}, "twice"),
        (4, {"tag": "clicks"}, "not frozen for this"),
        (5, {"tag": None}, "not frozen for this"),
        (5, {"tag": "made-up"}, "not declared"),
        (3, {"balance__spent_delta": 1e-12}, "another cost"),
        (5, {"balance__spent_delta": 1e-12}, "another cost"),
        (0, {"records": 0}, "answers over 0 records"),
        (1, {"dataset": DATASETS[0].hex()}, "second time"),
        (2, {"number": 7}, "does not follow"),
        (3, {"time": 1}, "outside its time"),
        (3, {"time": ledgers.NOW - 500}, "older"),
        (3, {"origin": "other.example"}, "not for"),
        (3, {"helper": "helper-1"}, "not helper-0's"),
        (3, {"parameters": "00" * 32}, "never published"),
    ],
)
def test_a_lying_helper_is_found_out(chain, at, changes, says):
    bent = rechained(chain, at, **changes)
    if says is None:  # Which datasets is the helper's word: a receipt for fewer costs fewer.
        verify(bent)
        return
    with pytest.raises(BadReceipt, match=says):
        verify(bent)


def test_going_over_the_budget_is_found_out(tmp_path, chain):
    """A helper whose ledger does not check: it charges more than there is, and signs it."""
    bent = list(chain[:3])
    for number in range(10):
        item = resigned(
            chain[3],
            number=4 + number,
            previous=bent[-1].digest.hex(),
            request=number.to_bytes(16, "big").hex(),
            charge__noise=1.0,
            balance={
                "charged_epsilon": 1.0, "spent_epsilon": number + 1.0,
                "spent_coalition_epsilon": number + 1.0, "spent_delta": 0.0, "left_epsilon": 7.0 - number,
            },
        )  # fmt: skip
        bent.append(item)
    with pytest.raises(BadReceipt, match="receipt 12 exceeds the budget"):
        verify(bent)


def test_a_dataset_frozen_under_another_document_is_refused(tmp_path):
    other = cases.make(k=1, version=2, previous=DOCUMENT.digest.hex())
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, other, DATASETS[0])
    ledger.charge(DOCUMENT, question(1))
    with pytest.raises(BadReceipt, match="not frozen for this"):
        verify(ledgers.chain(ledger), documents=[DOCUMENT, other])
    database.close()


def test_a_purpose_that_is_not_declared_is_refused(tmp_path):
    untrained = cases.make(k=1, models=[], training=None, decoys=[], fake_rate=0.0)
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, untrained, DATASETS[0], purpose=Purpose.TRAIN)
    with pytest.raises(BadReceipt, match="does not declare"):
        verify(ledgers.chain(ledger), documents=[untrained])
    database.close()


def test_a_receipt_in_a_second_form_is_refused(chain):
    """The same contents with a space in between, signed by the helper itself."""
    signs = Signs()
    spaced = chain[0].receipt.replace(":", ": ", 1)
    signature = signs.key.sign(receipt.RECEIPT_LABEL, spaced.encode()).hex()
    bent = SignedReceipt(receipt=spaced, signature=signature, certificate=signs.certificate)
    with pytest.raises(BadReceipt, match="one form"):
        verify([bent])


def test_a_certificate_of_another_helper_is_refused(chain):
    """Signed by the right identity, but it names another helper."""
    certificate = Certificate(
        helper="helper-1",
        key=Signs().key.verifying.public.hex(),
        not_before=0,
        not_after=2 * ledgers.NOW,
    )
    signed = certify(certificate, cases.HELPER_KEYS[0])
    made = receipt.sign(chain[0].claimed(), Signs().key, signed)
    with pytest.raises(BadReceipt, match="a receipt key that is not"):
        verify([made])


@pytest.mark.parametrize(
    "changes",
    [
        {"charge__columns": 1 << 53},
        {"charge__columns": 10**17},
        {"charge__noise": 1e300},
        {"charge__noise": 1e-300},
        {"number": 1 << 53},
    ],
)
def test_numbers_that_no_receipt_has_are_refused(chain, changes):
    item = json.loads(chain[3].receipt)
    for name, value in changes.items():
        place, _, inner = name.partition("__")
        (item[place] if inner else item)[inner or place] = value
    bent = SignedReceipt(
        receipt=json.dumps(item), signature=chain[3].signature, certificate=chain[3].certificate
    )
    with pytest.raises(BadReceipt):
        verify([*chain[:3], bent])


def test_another_identity_another_document_another_origin(chain):
    stranger = cases.make(k=1, helpers=cases.settings()["helpers"][::-1])
    with pytest.raises(BadReceipt, match="never published"):
        verify(chain, documents=[stranger])
    with pytest.raises(BadReceipt):
        verify(chain, origin="other.example")
    with pytest.raises(BadReceipt):
        verify(chain, helper="helper-1")
    with pytest.raises(BadReceipt, match="no helper of"):
        verify(chain, helper="helper-9")


def test_a_flipped_bit_in_every_byte_of_a_receipt_is_noticed(chain):
    data = chain[3].encode()
    for place in range(len(data)):
        bent = bytearray(data)
        bent[place] ^= 1 << (place % 7)
        try:
            signed = receipt.decode(bytes(bent))
            verify([*chain[:3], signed, *chain[4:]])
        except MaskedLarkError:
            continue
        assert signed == chain[3], f"byte {place} changed and nobody noticed"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"receipt": 1}', b"\xff"])
def test_what_is_no_receipt_is_refused(data):
    with pytest.raises(BadReceipt):
        receipt.decode(data)


CHECKED = cases.make(k=1, checks="bits")


@pytest.fixture
def checked(tmp_path) -> list[SignedReceipt]:
    """A helper's check key, and a dataset of which it left two reports out."""
    ledger, database, _ = ledgers.at(tmp_path)
    ledger.pin(CHECKED, b"k" * 32)
    for dataset in DATASETS[:2]:
        with database.write() as connection:
            signed = ledger.freeze(connection, CHECKED, Purpose.AGGREGATE, dataset, 60, invalid=2)
        ledger.advance_anchor("ads.example", signed)
    found = ledgers.chain(ledger)
    database.close()
    return found


def test_a_pinned_check_key_and_what_was_not_valid_are_in_the_chain(checked):
    pinned, frozen, _ = verify(checked, (CHECKED,)).receipts
    assert isinstance(pinned, CheckKeyReceipt)
    assert isinstance(frozen, FrozenReceipt)
    assert (pinned.key_digest, frozen.records, frozen.invalid) == ((b"k" * 32).hex(), 60, 2)


def test_a_receipt_of_a_dataset_without_checks_says_nothing_of_them(chain):
    assert "invalid" not in chain[0].receipt


def test_a_helper_that_says_nothing_of_checks_is_found_out(checked):
    with pytest.raises(BadReceipt, match="what its document says of checks"):
        verify(rechained(checked, 1, invalid=None), (CHECKED,))


def test_a_second_check_key_is_found_out(checked):
    last = {"number": 4, "previous": checked[-1].digest.hex(), "key_digest": "0" * 64}
    with pytest.raises(BadReceipt, match="a second check key"):
        verify([*checked, resigned(checked[0], **last)], (CHECKED,))


def test_reports_that_were_checked_without_a_key_are_refused(tmp_path):
    ledger, database, _ = ledgers.at(tmp_path)
    with database.write() as connection:
        signed = ledger.freeze(connection, CHECKED, Purpose.AGGREGATE, DATASETS[0], 60, invalid=0)
    ledger.advance_anchor("ads.example", signed)
    with pytest.raises(BadReceipt, match="without a key"):
        verify(ledgers.chain(ledger), (CHECKED,))
    database.close()
