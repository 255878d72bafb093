"""Sampling lowers the ε of an operator's own stepped function only where no record adds over half of S."""

import pytest

from maskedlark.core import sharing
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.errors import BadArguments
from maskedlark.functions.gradient import Gradient
from maskedlark.ledger.receipt_verification import verify
from tests.unit.parameters import cases
from tests.unit.release import stepping
from tests.unit.release.own_function import WHOLE, LabelSum
from tests.unit.release.stepping import ORIGIN, Rig

TRUTH = 14.7
"""The ε of labels that add 0 or S: noise 0.3, rate 0.003, 20 steps, δ = 10⁻⁶."""
ROOM = {"epsilon": 1000.0, "delta": 1e-3}
HALF = str(WHOLE / 2).encode()


@pytest.fixture
def rig(tmp_path):
    gaussian = {"kind": "gaussian", "noise_floor": 0.3}
    document = stepping.document(
        k=1,
        budget=ROOM,
        training={"adserver": ROOM, "coalition": ROOM},
        values=[],
        models=cases.settings()["models"][:1],
        decoys=[],
        fake_rate=0.0,
        mechanisms={"gradient": gaussian, "label_sum": gaussian},
    )
    made = Rig(tmp_path, document, functions={"gradient": Gradient(), "label_sum": LabelSum()})
    yield made
    made.close()


def opened(rig, number=1, function="label_sum", rate=0.003, **arguments) -> SessionCharge:
    """The charge of a session that was opened at all helpers, by its receipt."""
    sampling = Sampling(kind="poisson", rate=rate)
    request = rig.request(number, noise=0.3, sampling=sampling, steps=20)
    if function != "gradient":
        request = request.model_copy(update={"function": function, "arguments": arguments})
    rig.open(request)
    receipt = rig.sessions[0].find(ORIGIN, bytes.fromhex(request.id)).opened
    rig.asked = request
    assert isinstance(receipt.session_charge, SessionCharge)
    return receipt.session_charge


def test_a_function_that_declares_nothing_is_charged_as_if_its_batches_were_known(rig):
    charge = opened(rig)
    assert charge.rate == 1
    assert charge.batches < charge.steps == 20
    assert adserver_epsilon(charge) == coalition_epsilon(charge) > TRUTH
    assert opened(rig, 2, rate=1.0).batches == 20


@pytest.mark.parametrize(("function", "arguments"), [("gradient", {}), ("label_sum", {"declares": True})])
def test_a_function_of_which_no_record_adds_over_half_is_amplified(rig, function, arguments):
    charge = opened(rig, function=function, **arguments)
    assert charge.rate == 0.003
    assert adserver_epsilon(charge) == pytest.approx(2.236, abs=1e-3)
    assert coalition_epsilon(charge) > TRUTH


@pytest.mark.parametrize("used", [0, 1, 6, 20])
def test_a_session_that_is_not_amplified_is_closed_by_the_batches_that_helpers_enforce(rig, used):
    charge = opened(rig)
    for step in range(used):
        rig.answers(rig.asked, step, b"")
    session = bytes.fromhex(rig.asked.id)
    for place, (ledger, _, _) in enumerate(rig.ledgers):
        prepared = rig.pipelines[place].session(ORIGIN, session)
        allowed = prepared.batches.most(max(0, used - 1))
        receipt = rig.pipelines[place].close_session(ORIGIN, session).claimed()
        kept = receipt.still_charged
        assert (kept.steps, kept.batches) == (charge.kept(used), allowed if used else 0)
        found = verify(ledger.receipts(ORIGIN), ORIGIN, f"helper-{place}", [rig.document])
        assert [each.kind for each in found.receipts][-2:] == ["opened", "closed"]


def test_a_step_that_adds_more_than_its_session_declared_is_refused_and_takes_no_step(rig):
    opened(rig, declares=True)
    for body in (b"", str(WHOLE / 2 + 1).encode()):
        with pytest.raises(BadArguments, match="over half of its sensitivity"):
            rig.answers(rig.asked, 0, body)
    assert rig.used(rig.asked) == [0] * len(rig.places)
    assert sharing.combine(rig.answers(rig.asked, 0, HALF)).shape == (1,)
    assert rig.used(rig.asked) == [1] * len(rig.places)


def test_what_was_charged_decides_and_not_what_the_function_declares_now(rig):
    """As after an upgrade."""
    opened(rig, declares=True)
    rig.functions["label_sum"].begin = lambda *_: LabelSum().begin(rig.document, "clicks", {})
    restarted = rig.start(0)
    with pytest.raises(BadArguments, match="over half of its sensitivity"):
        restarted.step(ORIGIN, bytes.fromhex(rig.asked.id), 0, b"")


def test_known_batches_need_no_declaration(rig):
    opened(rig, rate=1.0)
    assert sharing.combine(rig.answers(rig.asked, 0, b"")).shape == (1,)
