"""The masked gradient equals its slow twin to the bit, whatever the network, the labels and the helpers."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.exact import digits
from maskedlark.exact.errors import OutOfField, TooWide
from maskedlark.exact.gradient import gradient
from maskedlark.exact.layout import step_layout
from tests.twins import exact as twin
from tests.unit.exact.cases import Case, add, cases, twin_network, twin_records


def quiet(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


def fits(case: Case) -> bool:
    try:
        step_layout(case.network, case.weights, case.clip).check_range(max(1, len(case.helpers[0])))
    except (OutOfField, TooWide):
        return False
    return True


def check_case(case: Case, block: int) -> None:
    assume(fits(case))
    # The first helper multiplies bytes, the others limbs: their masks cancel all the same.
    with mock.patch.object(digits, "_MIN_WORK", 0):
        shares = [gradient(case.network, case.weights, case.helpers[0], case.clip, block=block)]
    shares += [gradient(case.network, case.weights, own, case.clip, block=block) for own in case.helpers[1:]]
    net, own = twin_network(case.network, case.weights), case.helpers[0]
    seed = own.seed.seed if own.seed else None
    expected = twin.share(net, case.twin_clip, twin_records(own), seed)
    assert shares[0].tolist() == (expected or [0] * case.network.size)
    assert step_layout(case.network, case.weights, case.clip).exponent == twin.exponent_of(
        net, case.twin_clip
    )
    check_sum(case, net, seed, add(shares))


def check_sum(case: Case, net, seed, total) -> None:
    """All shares together are the true candidates' rows: masks that add up to 1, and to 0 elsewhere."""
    truth = add([own.masks for own in case.helpers])
    assert np.isin(truth, [0, 1]).all()
    rows, psi = [0] * case.network.size, case.clip.psi * 2.0 ** twin.exponent_of(net, case.twin_clip)
    records = twin_records(
        type(case.helpers[0])(
            case.helpers[0].features, case.helpers[0].candidates, truth, case.helpers[0].seed
        )
    )
    for record in records:
        state = twin.forward(net, record["features"], seed, record["id"])
        for label, masks in enumerate(record["masks"]):
            for y, mask in zip(record["candidates"][label], masks, strict=True):
                if mask:
                    one = twin.flat(net, twin.row(net, case.twin_clip, label, y, state))
                    check_bound(case, one, psi)
                    rows = [r + g for r, g in zip(rows, one, strict=True)]
    assert field.to_signed(total).tolist() == rows


def check_bound(case: Case, row: list[int], psi: float) -> None:
    power = sum(abs(g) for g in row) if case.clip.norm == "l1" else sum(g * g for g in row)
    share = psi / len(case.network.losses)
    assert power <= (share if case.clip.norm == "l1" else share**2)


@given(case=cases(), block=st.integers(1, 6))
@quiet(150)
def test_equals_the_twin(case: Case, block: int) -> None:
    check_case(case, block)


@given(case=cases(bits=16), block=st.integers(1, 6))
@quiet(40)
def test_equals_the_twin_with_16_bit_weights(case: Case, block: int) -> None:
    check_case(case, block)


@pytest.mark.long
@given(case=cases(), block=st.integers(1, 6))
@quiet(3000)
def test_equals_the_twin_many_times(case: Case, block: int) -> None:
    check_case(case, block)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_threads_do_not_matter(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        test_equals_the_twin()
    finally:
        torch.set_num_threads(before)
