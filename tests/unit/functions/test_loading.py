"""Functions by name: torch is imported when it is asked for, and no name is taken twice."""

import subprocess
import sys
from typing import ClassVar

import pytest

from maskedlark import functions
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.functions import EVALUATION, GRADIENT, OnDemand
from maskedlark.functions.function import Function, SteppedFunction
from maskedlark.functions.sums import Sums


class Stepped(SteppedFunction):
    """A function of an operator's own."""

    name: ClassVar[str] = "steps of ours"
    purpose = Purpose.TRAIN

    def begin(self, document, tag, arguments):
        pytest.fail("it is loaded here, and never begun")


class Ours(Sums):
    """A function of an operator's own, with the name of one that comes later."""

    name: ClassVar[str] = "evaluation"


def test_functions_to_train_are_known_by_name_and_made_once():
    stepped: OnDemand[SteppedFunction] = OnDemand({}, GRADIENT)
    assert (list(stepped), len(stepped)) == (["gradient"], 1)
    assert stepped["gradient"] is stepped["gradient"]
    asked: OnDemand[Function] = OnDemand(functions.load(), EVALUATION)
    assert set(asked) == {"sums", "evaluation"}
    assert asked["evaluation"].name == "evaluation"
    with pytest.raises(KeyError):
        asked["gradient"]


def test_torch_is_not_loaded_before_it_is_needed():
    code = (
        "import sys; from maskedlark import functions; "
        "found = functions.OnDemand(functions.load(), functions.EVALUATION); "
        "assert 'sums' in found and 'evaluation' in list(found) and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_a_helper_knows_sums_alone_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr(functions, "find_spec", lambda name: None)
    asked: OnDemand[Function] = OnDemand(functions.load(), EVALUATION)
    assert set(asked) == {"sums"}
    assert "evaluation" not in asked
    assert caplog.messages == ["not served here, because torch is not installed: evaluation"]


def test_no_name_is_taken_twice():
    with pytest.raises(NotDeclared, match="'evaluation' has a name that is taken"):
        OnDemand({"evaluation": Ours()}, EVALUATION)


def test_modules_bring_functions_of_either_kind():
    assert functions.load_stepped([__name__]).keys() == {"steps of ours"}
    assert functions.load([__name__]).keys() == {"sums", "evaluation"}
    with pytest.raises(NotDeclared, match="defines no Function"):
        functions.load_stepped(["json"])
    with pytest.raises(NotDeclared, match="can be imported"):
        functions.load_stepped(["no.such.module"])
