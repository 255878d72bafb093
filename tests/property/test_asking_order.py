"""What the first helper admits, the others admit: the reason for which it is asked first, and closes last."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.ledger.budget import Account, BudgetEntry, SessionRefund
from tests.property.charges import DOCUMENT, SESSION_CHARGES, SOME, TAGS
from tests.unit.ledger.ledgers import DATASETS

ROUNDING = 1e-11
"""Relative. The ε of Gaussian noise is searched for, to about 2e-12."""
KINDS = st.sampled_from(["laplace", "gaussian"])
CHARGES = st.builds(Charge, KINDS, st.floats(0.3, 100.0), st.integers(0, 200))
COLUMN = partial(st.builds, Charge, columns=st.just(1))
AGGREGATED = st.builds(BudgetEntry, st.none(), SOME, COLUMN(st.just("laplace"), st.floats(0.3, 4.0)))
CHARGED = st.builds(BudgetEntry, TAGS, SOME, COLUMN(st.just("gaussian"), st.floats(2.0, 30.0)))
OPENED = st.builds(
    BudgetEntry, TAGS, SOME, st.sampled_from(SESSION_CHARGES), st.binary(min_size=16, max_size=16)
)
ENTRIES = st.one_of(AGGREGATED, CHARGED, OPENED)
DEAR = st.builds(BudgetEntry, TAGS, st.just(DATASETS[:1]), st.just(SESSION_CHARGES[2]), st.just(bytes(16)))
"""One of these fits, and a second one once the first is refunded."""


@settings(deadline=None, max_examples=200)
@given(st.lists(CHARGES, max_size=6), CHARGES, st.sampled_from([1e-12, 1e-6, 1e-3]), st.booleans())
def test_one_more_charge_never_lowers_what_all_cost(charges, more, delta, mixed):
    before = accountant.epsilon(charges, delta, mixed=mixed)
    assert accountant.epsilon([*charges, more], delta, mixed=mixed) >= before * (1 - ROUNDING)


@settings(deadline=None, max_examples=60)
@given(st.lists(ENTRIES, max_size=8, unique_by=lambda entry: entry.session or id(entry)), st.data())
def test_some_of_the_entries_in_any_order_cost_no_more_than_all(entries, data):
    every, some = Account(DOCUMENT), Account(DOCUMENT)
    every.add(entries)
    some.add(data.draw(st.lists(st.sampled_from(entries), unique_by=id)) if entries else [])
    spent, least = every.spent(), some.spent()
    assert least.epsilon <= spent.epsilon * (1 + ROUNDING)
    assert least.coalition <= spent.coalition * (1 + ROUNDING)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(DEAR, ENTRIES, *[st.integers(0, 99)] * 2), min_size=6, max_size=40))
def test_another_helper_admits_whatever_the_first_has_in_whatever_order_it_comes(moves):
    """An entry arrives at the first; a number is a message to the other, or a session's end, in any order."""
    first, other = Account(DOCUMENT), Account(DOCUMENT)
    on_their_way: list[BudgetEntry] = []
    opened: list[BudgetEntry] = []
    refunded: list[SessionRefund] = []
    for number, move in enumerate(moves):
        if isinstance(move, BudgetEntry):
            entry = BudgetEntry(
                move.stream, move.datasets, move.charge, move.session and number.to_bytes(16, "big")
            )
            if first.fits(entry):
                first.add([entry])
                on_their_way.append(entry)
        elif move % 4 < 2 and on_their_way:
            entry = on_their_way.pop(move % len(on_their_way))
            assert other.fits(entry)
            other.add([entry])
            opened += [entry] if entry.session else []
        elif move % 4 == 2 and opened:
            entry = opened.pop(move % len(opened))
            assert not isinstance(entry.charge, Charge)
            kept = entry.charge.kept(move % 8 // 4 * entry.charge.steps // 4)
            closed = entry.charge.closed(kept, min(kept, entry.charge.batches))
            refunded.append(SessionRefund(entry.session, closed))
            other.add(refunded[-1:])
        elif move % 4 == 3 and refunded:
            first.add([refunded.pop(move % len(refunded))])
    for entry in on_their_way:
        assert other.fits(entry)
        other.add([entry])
