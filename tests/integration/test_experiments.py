"""What figures compute in memory is what services answer: the same weights, bit for bit."""

from dataclasses import replace

import pytest

pytest.importorskip("sklearn")

from experiments import over_http
from experiments.data import wbcd
from experiments.memory import Local, Run
from maskedlark.exact.clip import Clip


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [{"noise": 0.9}, {"local": Local(2.0, 3.0, 32.0), "clip": Clip(2.0, fraction=8)}],
    ids=["noise", "randomised"],
)
def test_a_run_over_http_has_the_weights_of_memory(changes):
    run = Run((30, 8, 1), Clip(1.0), batch=50, steps=4, rate=0.5, seed=0)
    found = over_http.both(wbcd.load().first(200), replace(run, **changes))
    assert found.differing == 0
    assert found.http == found.memory
    assert found.weights == 30 * 8 + 8 + 8 + 1
