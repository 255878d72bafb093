"""Field products equal Python's integers, at the extremes of every bound."""

import numpy as np
import pytest
import torch

from maskedlark.core.field import P
from maskedlark.exact import device, digits, products
from maskedlark.exact.products import Limbs

rng = np.random.default_rng(3)


def elements(*shape: int) -> np.ndarray:
    drawn = rng.integers(0, P, shape)
    edges = np.array([0, 1, P - 1, P // 2, P // 2 + 1, (1 << 31) - 1, 1 << 31, (1 << 60) + 1])
    return np.where(rng.random(shape) < 0.3, rng.choice(edges, shape), drawn)


def value(limbs: Limbs) -> list[int]:
    pairs = zip(limbs.low.flatten().tolist(), limbs.high.flatten().tolist(), strict=True)
    return [(int(low) + (int(high) << 31)) % P for low, high in pairs]


def test_split_fold_and_join_keep_the_element() -> None:
    x = elements(500)
    limbs = products.split(torch.from_numpy(x))
    assert value(limbs) == x.tolist()
    assert max(limb.abs().max().item() for limb in limbs) <= products.LIMB_TOP
    assert products.join(limbs).tolist() == x.tolist()


@pytest.mark.parametrize("top", [1, 1 << 30, products.EXACT])
def test_fold_and_join_take_limbs_up_to_the_bound(top: int) -> None:
    low, high = (rng.integers(-top, top + 1, 400) for _ in range(2))
    low[:4], high[:4] = [top, -top, top, -top], [top, -top, -top, top]
    wanted = [(a + (b << 31)) % P for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    raw = Limbs(torch.from_numpy(low).double(), torch.from_numpy(high).double())
    assert products.join(raw).tolist() == wanted
    folded = products.fold(raw)
    assert value(folded) == wanted
    assert max(limb.abs().max().item() for limb in folded) <= products.LIMB_TOP


@pytest.mark.parametrize("count", [1, 2, 511])
def test_many_limbs_are_joined_at_once(count: int) -> None:
    low, high = (rng.integers(-products.EXACT, products.EXACT + 1, (count, 50)) for _ in range(2))
    low[:, :4], high[:, :4] = products.EXACT * np.array([[1, -1, 1, -1], [1, -1, -1, 1]])[:, None]
    parts = [
        Limbs(torch.from_numpy(a).double(), torch.from_numpy(b).double())
        for a, b in zip(low, high, strict=True)
    ]
    totals = zip(low.astype(object).sum(axis=0), high.astype(object).sum(axis=0), strict=True)
    assert products.join_all(parts).tolist() == [(a + (b << 31)) % P for a, b in totals]


def test_canonical_takes_any_word() -> None:
    words = rng.integers(-(1 << 63), 1 << 62, 1000)
    words[:6] = [0, P, -P, -1, (1 << 63) - 1, -(1 << 63)]
    assert products.canonical(torch.from_numpy(words.copy())).tolist() == [w % P for w in words.tolist()]


@pytest.mark.parametrize("bits", [0, 1, 31, 60, 61, 100])
def test_rotate_is_a_power_of_two(bits: int) -> None:
    x = elements(200)
    assert products.rotate(torch.from_numpy(x), bits).tolist() == [(v << bits) % P for v in x.tolist()]


@pytest.mark.parametrize("top", [1, 1 << 20, (1 << 31) - 1])
def test_weigh(top: int) -> None:
    masks, numbers = elements(20, 5), rng.choice(np.array([-top, top, 0, 1]), (20, 5, 3))
    got = products.weigh(torch.from_numpy(masks), torch.from_numpy(numbers), top)
    m, q = masks.tolist(), numbers.tolist()
    assert value(got) == [
        sum(m[i][k] * q[i][k][j] for k in range(5)) % P for i in range(20) for j in range(3)
    ]


@pytest.mark.parametrize("top", [1, 127, 32767])
def test_times_blocks_what_would_not_be_exact(top: int) -> None:
    left, right = elements(4, 300), rng.choice(np.array([-top, top]), (300, 3))
    got = products.times(products.split(torch.from_numpy(left)), torch.from_numpy(right).double(), top)
    a, b = left.tolist(), right.tolist()
    wanted = [sum(a[i][k] * b[k][j] for k in range(300)) % P for i in range(4) for j in range(3)]
    assert value(got) == wanted


def test_times_keeps_or_drops() -> None:
    left, right, kept = elements(4, 30), rng.integers(-127, 128, (30, 6)), rng.integers(0, 2, (4, 6))
    limbs, matrix = products.split(torch.from_numpy(left)), torch.from_numpy(right).double()
    got = products.times_kept(limbs, matrix, 127, torch.from_numpy(kept).float())
    wanted = left.astype(object) @ right.astype(object) * kept % P
    assert value(got) == wanted.ravel().tolist()


@pytest.mark.parametrize(("rows", "length", "columns"), [(1, 1, 1), (16, 16, 16), (17, 48, 33), (40, 785, 5)])
def test_padded_products_of_bytes_are_the_same(rows: int, length: int, columns: int) -> None:
    if not digits.available(torch.device("cpu")):
        pytest.skip("this processor has no exact product of bytes")
    left, right = (rng.choice(np.array([-128, -1, 0, 127]), s) for s in ((rows, length), (length, columns)))
    sides = (torch.from_numpy(side.astype(np.int8)) for side in (left, right))
    assert (digits.multiply_padded(*sides).numpy() == left @ right).all()


def test_a_gpu_folds_scales_and_multiplies_bytes_as_a_cpu_does() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    place = torch.device("cuda")
    assert not any(device.failures(place).values())
    assert digits.available(place)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("road", ["limbs", "ones", "bytes"])
def test_contract(road: str, transposed: bool) -> None:
    if road == "bytes" and not digits.available(torch.device("cpu")):
        pytest.skip("this processor has no exact product of bytes")
    errors, inputs = elements(700, 6), rng.choice(np.array([0, 1, 127, 128, 255]), (700, 5)).astype(np.uint8)
    weight = Limbs(*torch.empty((2, 5, 6) if transposed else (2, 6, 5), dtype=torch.float64))
    bias = Limbs(*torch.empty((2, 6), dtype=torch.float64))
    limbs, numbers = products.split(torch.from_numpy(errors)), torch.from_numpy(inputs)
    if road == "bytes":
        digits.contract(limbs, digits.with_ones(numbers), weight, bias, transposed)
    else:
        contract = products.contract_with_ones if road == "ones" else products.contract
        contract(limbs, numbers, weight, bias, transposed)
    exact = errors.astype(object).T @ inputs.astype(object) % P
    assert products.join(weight).numpy().tolist() == (exact.T if transposed else exact).tolist()
    assert products.join(bias).tolist() == (errors.astype(object).sum(axis=0) % P).tolist()


def test_the_largest_block_is_still_exact() -> None:
    rows = products.max_rows(255)
    limbs = Limbs(*torch.full((2, rows, 1), float(products.LIMB_TOP), dtype=torch.float64))
    weight, bias = (Limbs(*torch.empty((2, *shape), dtype=torch.float64)) for shape in ((1, 1), (1,)))
    products.contract(limbs, torch.full((rows, 1), 255.0, dtype=torch.float64), weight, bias, False)
    wanted = products.LIMB_TOP * rows * 255
    assert wanted <= products.EXACT
    assert [limb.item() for limb in weight] == [wanted, wanted]


def test_the_largest_block_is_exact_in_bytes_too() -> None:
    if not digits.available(torch.device("cpu")):
        pytest.skip("this processor has no exact product of bytes")
    rows = products.max_rows(255)
    limbs = products.split(torch.full((rows, 2), (1 << 30) - 1))
    limbs.high.fill_(-float(1 << 29))
    for byte in (0, 255):
        weight = Limbs(*torch.empty((2, 2, 3), dtype=torch.float64))
        bias = Limbs(*torch.empty((2, 2), dtype=torch.float64))
        inputs = torch.full((rows, 3), byte, dtype=torch.uint8)
        digits.contract(limbs, digits.with_ones(inputs), weight, bias, False)
        element = (1 << 30) - 1 - (1 << 60)
        assert products.join(weight).unique().tolist() == [element * rows * byte % P]
        assert products.join(bias).unique().tolist() == [element * rows % P]
