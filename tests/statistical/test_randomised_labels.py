"""The gradient of randomised labels, unbiased by helpers, is on average the true one; as it is, it is not.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest

from maskedlark.core import field, local_dp, sharing
from maskedlark.core.records import TrainingRecords
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import BinaryCrossEntropy, SquaredError
from maskedlark.parameters import randomised
from maskedlark.randomness import FixedRandomness
from tests.unit.release import stepping
from tests.unit.release.stepping import clipped, network, quantised

DRAWS, RECORDS = 150, 40
SIGMAS = 6.5
"""Of 22 numbers, one false alarm in 10^7 with so many draws (Student's t of 149 degrees)."""
LOCAL = {"feature_noise": {"epsilon": 4.0, "sensitivity": 255.0}, "randomised_response": {"epsilon": 1.0}}
LABELS = [{"kind": "binary"}, {"kind": "integers", "value": "visit", "low": 0, "high": 4}]
CLIP = Clip(1.0, Norm.L2, 20, 0)


@pytest.fixture(scope="module", params=[1, 2])
def sums(request):
    """The true sum, and many of randomised labels: unbiased, and as they are."""
    labels, losses = LABELS[: request.param], (BinaryCrossEntropy(), SquaredError())[: request.param]
    model = {
        "tag": "clicks",
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": labels,
        "gradient_bound": 1.0,
        **LOCAL,
    }
    document = stepping.document(models=[model], fake_rate=0.0, decoys=[])
    declared, core = document.trained("clicks"), document.declared_models["clicks"]
    rng, made = FixedRandomness(b"labels"), network(losses=losses)
    features, ids = sharing.random_rows(RECORDS, 4, rng), np.zeros((RECORDS, 16), np.uint8)
    truth = [np.array(space.values)[rng.below(len(space), RECORDS) // 2] for space in core.labels]
    assert declared.randomised_response is not None
    response, real = declared.randomised_response, np.ones(RECORDS, np.bool_)

    def masked(columns):
        shown, secrets = core.mask(columns, real, rng)
        return TrainingRecords(ids, features, tuple(each[:1] for each in shown), secrets)

    def total(records):
        found = clipped(made, quantised(made), records, range(RECORDS), CLIP)
        return field.to_signed(found).astype(np.float64)

    drawn = [
        masked([local_dp.labels(*each, response, rng) for each in zip(truth, core.labels, strict=True)])
        for _ in range(DRAWS)
    ]
    unbiased = np.stack([total(randomised.unbiased(each, declared, 1)) for each in drawn]) / randomised.UNIT
    return total(masked(truth)), unbiased, np.stack([total(each) for each in drawn])


def far(draws, truth):
    """How many standard errors the mean lies from the truth, at the worst."""
    rounding = np.abs(truth).max() / randomised.UNIT
    error = draws.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    off = np.maximum(np.abs(draws.mean(axis=0) - truth) - rounding, 0)
    return float((off / np.maximum(error, 1.0)).max())


def test_the_mean_is_the_true_gradient(sums):
    truth, unbiased, _ = sums
    assert far(unbiased, truth) < SIGMAS


def test_without_helpers_work_the_mean_is_another(sums):
    truth, _, biased = sums
    assert far(biased, truth) > 2 * SIGMAS
