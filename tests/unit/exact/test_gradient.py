"""What the engine refuses, and roads, blocks, threads and devices that must not matter."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskedlark.core import field
from maskedlark.errors import NotDeclared
from maskedlark.exact import digits, layout, products
from maskedlark.exact.backward import Label
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.errors import ModelDoesNotFit, OutOfField, RecordsDoNotFit, TooWide
from maskedlark.exact.forward import Seed
from maskedlark.exact.gradient import Records, gradient
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Identity, LeakyRelu, Relu
from maskedlark.exact.quantise import Quantised, quantise
from tests.unit.exact.models import dense, random_parameters

LARGE = [
    (dense((300, 260, 10), SoftmaxCrossEntropy(10)), 10),
    (dense((300, 260, 40, 1), BinaryCrossEntropy()), 2),
    (dense((300, 260, 40, 4), SoftmaxCrossEntropy(4)), 4),
]


def random_records(network: Network, candidates: int, rows: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    shown = [np.tile(np.arange(candidates), (rows, 1)) for _ in network.losses]
    masks = rng.integers(0, field.P, (rows, candidates * len(shown)))
    return Records(rng.integers(0, 256, (rows, network.features)).astype(np.uint8), shown, masks)


def weights_of(network: Network, bits: int = 8) -> Quantised:
    return quantise(network, random_parameters(network, 1), (7,) * (len(network.layers) - 1), bits)


@pytest.mark.parametrize(("network", "candidates"), LARGE, ids=["softmax", "one output", "deep softmax"])
@pytest.mark.parametrize("norm", list(Norm))
def test_roads_blocks_and_threads_do_not_matter(
    network: Network, candidates: int, norm: Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, records = weights_of(network), random_records(network, candidates, 133)
    clip, before = Clip(1.0, norm), torch.get_num_threads()
    wanted = gradient(network, weights, records, clip)
    for threads, block, least in ((1, 133, 0), (2, 40, 0), (1, 23, 1 << 60), (2, 1 << 20, 1 << 60)):
        monkeypatch.setattr(digits, "_MIN_WORK", least)
        torch.set_num_threads(threads)
        try:
            assert (gradient(network, weights, records, clip, block=block) == wanted).all()
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize(("network", "candidates"), LARGE, ids=["softmax", "one output", "deep softmax"])
@pytest.mark.parametrize("least", [0, 1 << 60], ids=["bytes", "limbs"])
def test_a_block_of_more_records_than_a_product_holds_is_summed_in_strips(
    network: Network, candidates: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, records = weights_of(network), random_records(network, candidates, 133)
    wanted = gradient(network, weights, records, Clip(1.0))
    monkeypatch.setattr(digits, "_MIN_WORK", least)
    monkeypatch.setattr(products, "max_rows", lambda _: 50)
    assert (gradient(network, weights, records, Clip(1.0)) == wanted).all()


@pytest.mark.parametrize(("network", "candidates"), LARGE, ids=["softmax", "one output", "deep softmax"])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_gpu_gives_the_same_bits(network: Network, candidates: int, bits: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    weights, records = weights_of(network, bits), random_records(network, candidates, 5000)
    for norm in Norm:
        # 16-bit weights of three layers leave the field unless errors run back in the clear.
        clip = Clip(0.1, norm, fraction=12, depth=0 if bits == 8 else 2)
        wanted = gradient(network, weights, records, clip)
        assert (gradient(network, weights, records, clip, device="cuda") == wanted).all()
        assert (gradient(network, weights, records, clip, device="cuda", block=777) == wanted).all()


small = dense((4, 3, 2), SoftmaxCrossEntropy(2))
good = random_records(small, 2, 6)
few = replace(good, candidates=[good.candidates[0][:, :1]])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (replace(good, features=good.features[:, :3]), "4 per record"),
        (replace(good, features=good.features.astype(np.int64)), "bytes"),
        (replace(good, candidates=[]), "labels"),
        (replace(good, candidates=[good.candidates[0][:5]]), "candidates"),
        (replace(good, candidates=[good.candidates[0] + 1]), "0 … 1"),
        (replace(good, masks=good.masks[:, :1]), "mask"),
        (replace(good, masks=good.masks - field.P), "field"),
        (replace(good, masks=good.masks.astype(np.float64)), "int64"),
        (replace(good, masks=good.masks.astype(np.uint64)), "int64"),
        (replace(good, candidates=[good.candidates[0] + 0.4]), "int64"),  # type: ignore[list-item]
        (replace(good, candidates=[good.candidates[0].astype(np.int32)]), "int64"),
    ],
)
def test_records_of_another_form_are_refused(bad: Records, why: str) -> None:
    with pytest.raises(RecordsDoNotFit, match=why):
        gradient(small, weights_of(small), bad, Clip(1.0))


def test_dropout_needs_its_seed_and_follows_it() -> None:
    layers = (Layer(Linear("w0", "b0", 4, 30)), Layer(Linear("w1", "b1", 30, 2), Relu(), Dropout(128)))
    network = Network(layers, (SoftmaxCrossEntropy(2),))
    weights = weights_of(network)
    with pytest.raises(RecordsDoNotFit, match="seed"):
        gradient(network, weights, good, Clip(1.0))
    ids = np.random.default_rng(1).integers(0, 256, (6, 16)).astype(np.uint8)
    runs = [
        gradient(network, weights, replace(good, seed=Seed(seed, ids)), Clip(1.0)).tolist()
        for seed in (b"one", b"one", b"two")
    ]
    assert runs[0] == runs[1] != runs[2]


def test_turned_round_and_transposed_arrays_do_as_well() -> None:
    weights, (shown,) = weights_of(small), good.candidates
    wanted = gradient(small, weights, good, Clip(1.0))
    turned = Records(good.features[::-1], [shown[::-1]], good.masks[::-1])
    lying = Records(
        *(
            np.asfortranarray(a) if i != 1 else [np.asfortranarray(shown)]  # type: ignore[arg-type]
            for i, a in enumerate((good.features, shown, good.masks))
        )
    )
    for records in (turned, lying):
        assert (gradient(small, weights, records, Clip(1.0)) == wanted).all()


def test_what_a_caller_set_up_in_torch_does_not_matter() -> None:
    large, candidates = LARGE[0]
    for network, shown in ((small, 2), (large, candidates)):
        weights, records = weights_of(network), random_records(network, shown, 40)
        wanted = gradient(network, weights, records, Clip(1.0))
        torch.set_float32_matmul_precision("medium")
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert (gradient(network, weights, records, Clip(1.0)) == wanted).all()
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.set_float32_matmul_precision("highest")


def test_a_row_without_a_bias_is_clipped_by_its_own_length() -> None:
    """x = 1/4 and z - y = -3: the row is 3/4 long, within 1, and comes back whole."""
    network = Network((Layer(Linear("w0", None, 1, 1)),), (SquaredError(),))
    weights = Quantised(np.zeros(1, np.int16), (0,), ())
    for x, y, wanted in ((64, 3, -0.75), (64, 5, -1.0), (0, 5, 0.0)):
        one = Records(np.array([[x]], np.uint8), [np.array([[y]])], np.ones((1, 1), np.int64))
        row = field.to_signed(gradient(network, weights, one, Clip(1.0)))[0] * 2.0**-28
        assert row == pytest.approx(wanted, rel=1e-5)
        assert abs(row) <= 1.0


def test_masks_do_not_print() -> None:
    label = Label(0, torch.zeros(1, 1), torch.tensor([[12345]]))
    assert "12345" not in repr(label) + repr(good)


def wide_network(width: int) -> tuple[Network, Quantised]:
    layers = (
        Layer(Linear("w0", None, 1, 1)),
        Layer(Linear("w1", None, 1, width), LeakyRelu(1024), Dropout(1)),
        Layer(Linear("w2", None, width, 1), Relu()),
    )
    network = Network(layers, (BinaryCrossEntropy(),))
    return network, Quantised(np.full(network.size, 32767, np.int16), (0, 0, 0), (8, 8), 16)


def test_a_layer_that_leaves_no_room_for_an_error_is_refused_by_name() -> None:
    with pytest.raises(TooWide, match="w1"):
        layout.step_layout(*wide_network(1 << 19), Clip(1.0))


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("depth", [0, 1, 140])
def test_a_very_deep_network_is_refused_by_name(norm: Norm, depth: int) -> None:
    layers = [Layer(Linear("w0", None, 1, 1))] + [
        Layer(Linear(f"w{k}", None, 1, 2 if k == 139 else 1), Identity(), Dropout(255)) for k in range(1, 140)
    ]
    network = Network(tuple(layers), (SoftmaxCrossEntropy(2),))
    weights = Quantised(np.ones(network.size, np.int16), (0,) * 140, (8,) * 139)
    with pytest.raises(TooWide, match=r"w\d+:"):
        layout.step_layout(network, weights, Clip(1.0, norm, depth=depth))


def test_a_batch_that_could_leave_the_field_is_refused() -> None:
    with pytest.raises(OutOfField, match="noise"):
        gradient(small, weights_of(small), good, Clip(1.0), noise_tail=1 << 60)


def test_networks_that_do_not_hold_together_are_refused() -> None:
    first, second = Layer(Linear("w0", None, 4, 3)), Layer(Linear("w1", None, 3, 1), Relu())
    with pytest.raises(ModelDoesNotFit, match="linear"):
        Network((), ())
    with pytest.raises(ModelDoesNotFit, match=r"w1.*outputs"):
        Network((first, second), (SoftmaxCrossEntropy(2),))
    with pytest.raises(ModelDoesNotFit, match=r"w1.*activation"):
        Network((first, replace(second, activation=None)), (SquaredError(),))
    with pytest.raises(ModelDoesNotFit, match=r"w0.*two layers"):
        Network((first, replace(second, linear=replace(second.linear, weight="w0"))), (SquaredError(),))
    with pytest.raises(ModelDoesNotFit, match=r"w1.*features"):
        Network((second,), (SquaredError(),))


def test_a_layer_too_wide_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that exceeds float64 would have 2^29 inputs; with less room, fewer do."""
    monkeypatch.setattr(layout, "EXACT_BITS", 12)
    with pytest.raises(TooWide, match="w0"):
        gradient(small, weights_of(small), good, Clip(1.0))


@pytest.mark.parametrize(("psi", "fraction"), [(0.0, 20), (float("nan"), 20), (1.0, 31), (4096.0, 20)])
def test_bounds_that_make_no_sense_are_refused(psi: float, fraction: int) -> None:
    with pytest.raises(NotDeclared):
        Clip(psi, fraction=fraction)
