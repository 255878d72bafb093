"""What figures compute in memory is what services answer: the same weights and labels, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sklearn")

from experiments import over_http
from experiments.data import wbcd
from experiments.figures.one_release_run import CELLS, MOMENTS, TAG, declared
from experiments.memory import Local, Run
from maskedlark.exact.clip import Clip
from maskedlark.fitting import CellLabels, LogisticRegression


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


@pytest.mark.parametrize(
    ("kind", "function", "numbers"),
    [
        pytest.param(CellLabels, CELLS, "soft_", marks=pytest.mark.long),
        pytest.param(LogisticRegression, MOMENTS, "coef_", marks=pytest.mark.long),
    ],
)
def test_a_release_over_http_has_the_numbers_of_memory(kind, function, numbers):
    """Noise of their own would make them differ: the twin has the records and seeds that helpers had."""
    data = wbcd.load().first(300)
    served, own = over_http.released(
        data,
        declared(data, function, 90.0),
        lambda client: kind(client, TAG, epsilon=1.0).fit(data.features),
    )
    assert served is not own
    assert served.answered_.helpers == 2
    assert served.answered_.balance.charged_epsilon == pytest.approx(1.0, rel=1e-3)
    assert np.array_equal(*(getattr(each, numbers).view(np.uint8) for each in (served, own)))
    counts = [each.answered_.tables[0].columns[0].tolist() for each in (served, own)]
    assert counts[0] == counts[1]
