"""No order of openings, steps, closings and releases takes a source beyond its budget."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.mechanisms import Kind
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon, sampled_epsilon
from maskedlark.errors import ReleaseRefused
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.budget import Account, BudgetEntry, SessionRefund
from maskedlark.ledger.errors import StepTaken
from tests.property.charges import CEILINGS, DOCUMENT, SESSION_CHARGES, SOME, TAGS
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, ChargedSessions, opening, question

OPENED = st.tuples(st.just("open"), TAGS, SOME, st.sampled_from(SESSION_CHARGES))
CLOSED = st.tuples(st.just("close"), st.integers(0, 7), st.floats(0, 1), st.just(None))
CHARGED = st.tuples(st.just("charge"), TAGS, SOME, st.floats(2.0, 30.0))
AGGREGATED = st.tuples(st.just("charge"), st.none(), SOME, st.floats(0.5, 4.0))
MOVES = st.lists(st.one_of(OPENED, OPENED, CLOSED, CHARGED, AGGREGATED), max_size=14)


class Shadow:
    """What was really used, dataset by dataset, without an account."""

    def __init__(self):
        self.sessions = {}
        self.charges = []

    def cost(self, coalition):
        """The sum over streams of the dearest dataset: used steps alone, at the whole δ of each charge."""
        places: dict[tuple[str, bytes], float] = {}
        for stream, datasets, charge, used in self.sessions.values():
            known = accountant.epsilon(
                [Charge(charge.mechanism, charge.noise, min(used, charge.batches))], charge.delta
            )
            hidden = (
                sampled_epsilon(charge.noise, charge.rate, used, charge.delta)
                if used > 0 and charge.rate < 1
                else known
            )
            for dataset in datasets:
                figure = known if coalition else min(known, hidden)
                places[stream, dataset] = places.get((stream, dataset), 0.0) + figure
        dearest: dict[str, float] = {}
        for (stream, _), figure in places.items():
            dearest[stream] = max(dearest.get(stream, 0.0), figure)
        return sum(dearest.values())


@settings(deadline=None, max_examples=60)
@given(MOVES)
def test_no_order_of_moves_exceeds_a_ceiling_or_forgets_what_was_used(moves):
    account, shadow = Account(DOCUMENT), Shadow()
    open_ones: list[bytes] = []
    for number, (move, first, second, third) in enumerate(moves):
        before = account.spent()
        if move == "close":
            if not open_ones:
                continue
            session = open_ones.pop(first % len(open_ones))
            stream, datasets, charge, _ = shadow.sessions[session]
            used = round(second * charge.steps)
            kept = charge.kept(used)
            shadow.sessions[session] = stream, datasets, charge, used
            closing = SessionRefund(session, charge.closed(used, min(kept, charge.batches)))
            assert account.cost(closing).after.epsilon <= before.epsilon
            account.add([closing])
            after = account.spent()
            assert after.epsilon <= before.epsilon
            assert after.coalition <= before.coalition
        else:
            session = bytes([number]) * 16
            kind: Kind = "laplace" if first is None else "gaussian"
            entry = BudgetEntry(first, second, third if move == "open" else Charge(kind, third, 1), session)
            if not account.fits(entry):
                continue
            cost = account.cost(entry)
            account.add([entry])
            assert account.spent() == cost.after
            if move == "open":
                open_ones.append(session)
                shadow.sessions[session] = first, second, third, third.steps
        spent = account.spent()
        assert spent.epsilon <= DOCUMENT.budget.epsilon
        assert spent.epsilon <= spent.coalition
        assert spent.delta <= DOCUMENT.budget.delta
        assert shadow.cost(coalition=False) <= spent.epsilon * (1 + 1e-6) + 1e-9
        assert shadow.cost(coalition=True) <= spent.coalition * (1 + 1e-6) + 1e-9
        training = [place for place in account._costs() if place.stream is not None]
        if training:
            assert shadow.cost(coalition=True) <= CEILINGS["coalition"]["epsilon"] * (1 + 1e-6)
            assert shadow.cost(coalition=False) <= CEILINGS["adserver"]["epsilon"] * (1 + 1e-6)


STEPS = st.tuples(st.just("take"), st.integers(0, 3), st.integers(0, 15), st.integers(0, 1))
OPENS = st.tuples(st.just("open"), st.integers(0, 3), st.sampled_from([1.0, 3.0, 9.0]), TAGS)
CLOSES = st.tuples(st.just("close"), st.integers(0, 3), st.just(0), st.just(0))
ASKS = st.tuples(st.just("ask"), st.integers(0, 50), st.just(0), st.just(0))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.one_of(OPENS, OPENS, STEPS, STEPS, CLOSES, ASKS), min_size=4, max_size=16))
def test_a_third_party_finds_every_ledgers_history_within_the_budget(moves):
    with tempfile.TemporaryDirectory() as folder:
        ledger, database, marks = ledgers.at(Path(folder))
        ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0], purpose=Purpose.TRAIN)
        sessions, engine = ChargedSessions(ledger), opening(0).engine
        won: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        for move, which, second, third in moves:
            request = opening(which, steps=16).request
            try:
                if move == "open":
                    sessions.open(DOCUMENT, opening(which, steps=16, noise=second, tag=third))
                elif move == "take":
                    body = bytes([third]) * 32
                    seed = sessions.claim_step("ads.example", request, second, body, engine)
                    assert won.setdefault((which, second), (body, seed)) == (body, seed)
                elif move == "close":
                    sessions.close(DOCUMENT, request)
                else:
                    ledger.charge(DOCUMENT, question(which, noise=20.0, kind="gaussian", tag="clicks"))
            except StepTaken:
                assert won[which, second][0] != body
            except ReleaseRefused:
                pass
        found = receipt_verification.verify(
            ledger.receipts("ads.example"), "ads.example", "helper-0", [DOCUMENT]
        )
        database.close()
        # Who starts anew on the same database counts the same.
        again, database, _ = ledgers.at(Path(folder), marks)
        cost, _ = again.explain(DOCUMENT, question(99, noise=50.0, kind="gaussian", tag="clicks"))
        spent = found.spent().get(DOCUMENT.digest.hex())
        assert cost.before.epsilon == pytest.approx(spent.epsilon if spent else 0.0)
        assert cost.before.coalition == pytest.approx(spent.coalition if spent else 0.0)
        database.close()


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(SESSION_CHARGES), st.data())
def test_a_session_that_used_more_never_costs_less(charge, data):
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, charge.steps)] * 2)))
    closed = [charge.closed(used, min(charge.kept(used), charge.batches)) for used in (low, high)]
    for figure in (adserver_epsilon, coalition_epsilon):
        assert figure(closed[0]) <= figure(closed[1]) <= figure(charge)
