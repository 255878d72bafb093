import subprocess
import sys

import pytest

from maskedlark import training
from maskedlark.training.predictor import Predictor, load


def test_what_users_need_has_a_short_name():
    assert (training.load, training.Predictor) == (load, Predictor)
    assert all(getattr(training, name) for name in training.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        training.nothing  # noqa: B018


def test_what_does_without_torch_starts_without_it():
    code = "import sys, maskedlark.training.metrics, maskedlark.cli.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
