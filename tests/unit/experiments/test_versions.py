"""Versions of the code behind figures: each stands for what these seeds give."""

import hashlib

import numpy as np
import pytest

from experiments import memory
from experiments.versions import VERSIONS
from maskedlark.clock import FixedClock
from maskedlark.core import batches
from maskedlark.dp import mechanisms
from maskedlark.dp.calibration import noise_for_session
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.exact.clip import Clip
from maskedlark.exact.losses import SoftmaxCrossEntropy
from maskedlark.exact.quantise import calibrate, quantise
from maskedlark.functions.gradient import GradientQuery
from maskedlark.randomness import FixedRandomness
from maskedlark.workflow import Workflow
from tests.unit.exact.models import dense, random_parameters

SEED = bytes(range(32))
SETTINGS = """
k = 2
keys = ["campaign"]
values = {bought = [0, 1]}
mechanisms.sums = {kind = "laplace", noise_floor = 1.0}
"""


def draws():
    own, *helpers = (FixedRandomness(who) for who in (b"own", b"0", b"1"))
    with Workflow.declared(SETTINGS, 2, FixedClock(1_900_000_000), own, helpers) as way:
        way.make_aggregate_dataset("a", [["spring", "winter"] * 10], [[1, 0] * 10])
        numbers = [row.numbers[0].estimate for row in way.query(["bought"], by="campaign", noise=1.0).rows]
    yield np.array(numbers, np.float64)
    for number in range(3):
        yield batches.poisson(SEED, "m", number, 0.1, 1000).batch
        yield batches.partition(SEED, "m", number, 4, 1000)


def engine():
    rng = np.random.default_rng(0)
    rows, labels = rng.integers(0, 256, (100, 12), dtype=np.uint8), rng.integers(0, 3, 100)
    network = dense((12, 8, 3), SoftmaxCrossEntropy(3))
    parameters = random_parameters(network, 0)
    weights = quantise(network, parameters, calibrate(network, parameters, rows))
    yield memory.share(GradientQuery("m", network, weights, Clip(1.0)).step, rows, labels)


def noise():
    for kind in ("laplace", "gaussian"):
        yield mechanisms.draw(kind, 1.5, Sensitivity(1 << 20, 1 << 20), SEED, 100)
    needed = [noise_for_session("gaussian", rate, 100, 1e-6, 1.0) for rate in (0.01, 1.0)]
    yield np.round(needed, 6)


FOUND = {
    ("draws", 2): "dee18e566ab81ae7",
    ("engine", 1): "8683c24edd3c6cba",
    ("noise", 1): "1d39f7cda71a2076",
}


@pytest.mark.parametrize("find", [draws, engine, noise], ids=lambda each: each.__name__)
def test_other_numbers_have_another_version(find):
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in find())).hexdigest()
    name = find.__name__
    assert FOUND.get((name, VERSIONS[name])) == digest[:16], f"raise {name} in experiments/versions.py"
