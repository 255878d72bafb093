import numpy as np
import pytest

from maskedlark.audit.attacks import Advantage, advantage


def test_advantage_of_a_reader_a_liar_and_a_blind_one():
    truth = np.array([True] * 50 + [False] * 50)
    assert advantage(truth, truth).value == 1
    assert advantage(~truth, truth).value == -1
    always = advantage(np.ones(100, np.bool_), truth)
    assert always.value == 0
    assert always.error == pytest.approx(0.1)
    assert advantage(truth, truth).deviations == pytest.approx(10)
    assert str(always) == "0.000 ± 0.100"
    assert str(Advantage(-0.0001, 0.1)) == "0.000 ± 0.100", "what rounds to 0 has no sign"
    assert str(Advantage(-0.0006, 0.1)) == "-0.001 ± 0.100"
