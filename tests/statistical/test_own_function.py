"""Labels that add 0 or the whole sensitivity: batches that nobody knows hide them far less than gradients.

Every record is a canary with a number of its own in the answer, so one session is thousands of trials. The
attacker sees sums, not batches, and was told one helper's noise, since each helper's alone has to suffice. It
takes the likelihood ratio of (1 - q) N(0, σ²) + q N(S, σ²) against N(0, σ²). A bound is wrong once in ten
thousand runs. Coins, batches and noise follow from fixed seeds.
"""

from pathlib import Path

import numpy as np
import pytest

from maskedlark.audit import canaries
from maskedlark.core import field, sharing
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import adserver_epsilon
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import SessionRequest
from maskedlark.release.session import body_digest
from tests.statistical.training_in_memory import TAG, HelpersInMemory, helpers_in_memory
from tests.unit.parameters import cases
from tests.unit.release.own_function import WHOLE, LabelSum

CANARIES, STEPS, RATE, NOISE, DELTA = 60_000, 40, 0.005, 0.25, 1e-3
FALSE_ALARM = 1e-4
HALF = str(WHOLE / 2).encode()
"""What a function says that allows amplification, true or not."""
ROOM = {"epsilon": 1000.0, "delta": 1e-2}
DOCUMENT = cases.make(
    k=1,
    budget=ROOM,
    training={"adserver": ROOM, "coalition": ROOM},
    mechanisms={LabelSum.name: {"kind": "gaussian", "noise_floor": NOISE}},
    models=[
        {
            "tag": TAG,
            "columns": [{"kind": "bytes", "count": 2}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 1.0,
        }
    ],
    keys=[],
    values=[],
    decoys=[],
    fake_rate=0.0,
)


def scores(helpers: HelpersInMemory, request: SessionRequest) -> np.ndarray:
    """The log-likelihood ratio of a label of 1 for every canary, from all steps."""
    origin, session = DOCUMENT.origin, bytes.fromhex(request.id)
    found = np.zeros(CANARIES)
    for step in range(STEPS):
        total = sharing.combine([each.step(origin, session, step, HALF) for each in helpers.pipelines])
        ready = helpers.pipelines[1].session(origin, session)
        told = helpers.sessions[1].claim_step(
            origin, session, step, body_digest(HALF, ()), ready.engine, ready.scope.seeds
        )
        (column,) = ready.steps.at(HALF, b"").columns
        noise = mechanisms.draw("gaussian", NOISE, column.sensitivity, told, CANARIES)
        sums = (field.to_signed(total) - noise) / WHOLE
        found += np.log1p(RATE * np.expm1((sums - 0.5) / NOISE**2))
    return found


def observed(folder: Path, declares: bool) -> tuple[float, float]:
    """The ε that a session is charged, and the least ε that its answers have."""
    rng = FixedRandomness(b"all or nothing")
    rows = np.arange(CANARIES, dtype="<u2").view(np.uint8).reshape(CANARIES, 2)
    coins = rng.below(2, CANARIES)
    with helpers_in_memory(
        folder, DOCUMENT, rows, coins, rng, functions={LabelSum.name: LabelSum()}
    ) as helpers:
        request = SessionRequest(
            id="07" * 16,
            datasets=(helpers.digests[0].hex(),),
            slots=(0,),
            function=LabelSum.name,
            tag=TAG,
            arguments={"width": CANARIES, "declares": declares},
            noise=NOISE,
            sampling=Sampling(kind="poisson", rate=RATE),
            steps=STEPS,
            delta=DELTA,
        )
        for pipeline in helpers.pipelines:
            opened = pipeline.open_session(DOCUMENT.origin, request.encode(), request).claimed()
        assert isinstance(opened, OpenedReceipt)
        assert opened.session_charge is not None
        charged = adserver_epsilon(opened.session_charge)
        least = canaries.lower_bound(coins == 1, scores(helpers, request), 1 - FALSE_ALARM, DELTA)
    print(f"at least {least:.2f}, charged {charged:.2f}")
    return charged, least


@pytest.fixture(scope="module")
def amplified(tmp_path_factory) -> tuple[float, float]:
    """Of a function that declares what is not true: it is charged as all were before."""
    return observed(tmp_path_factory.mktemp("amplified"), declares=True)


def test_labels_that_add_all_or_nothing_cost_more_than_the_amplified_figure(amplified):
    charged, least = amplified
    assert charged == pytest.approx(1.71, abs=0.01)
    assert least > 1.5 * charged


def test_they_cost_no_more_than_is_charged_where_nothing_is_declared(amplified, tmp_path):
    charged, least = observed(tmp_path, declares=False)
    assert amplified[0] < least < charged
