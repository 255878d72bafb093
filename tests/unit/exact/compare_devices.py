"""Compare a device with the CPU, bit for bit: `python -m tests.unit.exact.compare_devices cuda`.

Needs torch and numpy alone, for machines that have a GPU and little else.
"""

import sys
import time

import numpy as np
import torch

from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import device, digits
from maskedlark.exact.cells import Buckets, Largest, Partition, cells
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.gradient import GradientEngine, Records, gradient
from maskedlark.exact.layout import step_layout
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Network
from maskedlark.exact.operations import Activation, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.exact.quantise import Quantised, quantise
from maskedlark.exact.resident import Columns
from tests.unit.exact.models import dense, random_parameters

ACTIVATIONS: list[Activation] = [Relu(), Identity(), LeakyRelu(26), Elu(256), Sigmoid(), Tanh()]
HEADS: list[tuple[Loss, ...]] = [
    (BinaryCrossEntropy(),),
    (SquaredError(),),
    (SoftmaxCrossEntropy(5),),
    (SoftmaxCrossEntropy(3), BinaryCrossEntropy(), SquaredError()),
]
SHAPES = [(7, 5), (40, 60), (784, 500), (100, 128, 64)]


def records_of(network: Network, rows: int, seed: int) -> Records:
    """Random features, the labels 0 and 1 as candidates, and uniform masks."""
    rng = np.random.default_rng(seed)
    shown = [np.tile(np.arange(2), (rows, 1)) for _ in network.losses]
    masks = rng.integers(0, field.P, (rows, 2 * len(shown)))
    return Records(rng.integers(0, 256, (rows, network.features)).astype(np.uint8), shown, masks)


def compare(name: str, network: Network, rows: int, bits: int, norm: Norm) -> bool:
    """One step on the CPU, in limbs, and on the device, whole and in blocks."""
    parameters = random_parameters(network, rows)
    hidden = tuple(layer.activation.fixed_exponent or 7 for layer in network.layers[1:] if layer.activation)
    weights = quantise(network, parameters, hidden, bits, cap=6)
    records, clip = records_of(network, rows, rows), Clip(0.25, norm, fraction=10, depth=rows % 3)
    wanted = gradient(network, weights, records, clip)
    outputs = network.layers[-1].linear.outputs
    partitions: list[Partition] = [
        Largest(0, outputs),
        Largest(outputs - 1, 1),
        Buckets(0, (-0.5, 0.0, 0.25)),
    ]
    same = all(
        (gradient(network, weights, records, clip, device=name, block=block) == wanted).all()
        for block in (1 << 20, 311)
    )
    same &= resident(name, network, weights, records, clip)
    phi, own = Representation(network, weights, 0.5, norm), records.masks[:, :2].__getitem__
    summed = [phi.share(records.features, own, 2, device=each) for each in ("cpu", name)]
    same &= bool((summed[0] == summed[1]).all())
    pairs = zip(
        cells(network, weights, records.features, partitions),
        cells(network, weights, records.features, partitions, device=name),
        strict=True,
    )
    return same and all((a == b).all() for a, b in pairs)


def resident(name: str, network: Network, weights: Quantised, records: Records, clip: Clip) -> bool:
    """Rows of columns that stay on the device, some of them padding."""
    rng = np.random.default_rng(len(records))
    ids = np.zeros((len(records), 16), np.uint8)
    held = TrainingRecords(ids, records.features, tuple(records.candidates), records.masks)
    places, counted = rng.integers(0, len(records), 333), rng.random(333) < 0.9
    kept = places[counted]
    shown = [column[kept] for column in records.candidates]
    wanted = gradient(network, weights, Records(records.features[kept], shown, records.masks[kept]), clip)
    engine = GradientEngine(step_layout(network, weights, clip), device.ready(name))
    got = engine.share(Columns.of(held, network, name).rows(places, counted))
    return bool((got == wanted).all())


def main(name: str) -> int:
    """Every activation, head, shape, width of weights and norm."""
    sys.stdout.write(f"torch {torch.__version__}, {name}")
    sys.stdout.write(f" ({torch.cuda.get_device_name()})\n" if name.startswith("cuda") else "\n")
    for check, failed in device.failures(device.ready(name)).items():
        sys.stdout.write(f"known answers, {check}: {'WRONG' if failed else 'exact'}\n")
    for place in dict.fromkeys(("cpu", name)):
        sys.stdout.write(f"products of bytes, {place}: {digits.available(torch.device(place))}\n")
    cases = [
        (activation, heads, shape, bits, norm)
        for activation in ACTIVATIONS
        for heads in HEADS
        for shape in SHAPES
        for bits in (8, 16)
        for norm in Norm
    ]
    wrong, start = 0, time.perf_counter()
    for activation, heads, shape, bits, norm in cases:
        network = dense((*shape, sum(loss.outputs for loss in heads)), *heads, activation=activation)
        rows = 200 if shape[0] > 500 else 1000
        if not compare(name, network, rows, bits, norm):
            wrong += 1
            sys.stdout.write(f"DIFFERENT: {activation} {heads} {shape} {bits} bits {norm}\n")
    took = time.perf_counter() - start
    sys.stdout.write(
        f"{len(cases) - wrong} of {len(cases)} cases equal to the CPU bit for bit, in {took:.0f} s\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
