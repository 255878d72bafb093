"""Functions by name: torch is imported when it is asked for, and no name is taken twice."""

import subprocess
import sys
from typing import ClassVar

import pytest

from maskedlark import functions
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.functions import Functions
from maskedlark.functions.function import SteppedFunction
from maskedlark.functions.sums import Sums


class Stepped(SteppedFunction):
    """A function of an operator's own."""

    name: ClassVar[str] = "our_steps"
    purpose = Purpose.TRAIN

    def begin(self, document, tag, arguments):
        pytest.fail("it is loaded here, and never begun")


class Ours(Sums):
    """Another."""

    name: ClassVar[str] = "our_sums"


def test_functions_to_train_are_known_by_name_and_made_once():
    known = Functions()
    assert (set(known), len(known)) == ({"sums", "cells", "gradient", "moments"}, 4)
    assert known["gradient"] is known["gradient"]
    assert known["cells"].name == "cells"
    with pytest.raises(KeyError):
        known["gradients"]


def test_torch_is_not_loaded_before_it_is_needed():
    code = (
        "import sys; from maskedlark.functions import Functions; known = Functions(); "
        "assert {'sums', 'cells', 'gradient', 'moments'} == set(known) and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_a_helper_knows_sums_alone_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr(functions, "find_spec", lambda name: None)
    known = Functions()
    assert set(known) == {"sums"}
    assert "cells" not in known
    assert caplog.messages == ["not served here, because torch is not installed: cells, gradient, moments"]


@pytest.mark.parametrize("name", ["sums", "cells", "our_steps"])
def test_no_name_is_taken_twice(monkeypatch, name):
    monkeypatch.setattr(Ours, "name", name)
    with pytest.raises(NotDeclared, match=f"'{name}' of .* has a name that is taken"):
        Functions([__name__])


@pytest.mark.parametrize("name", ["", "our-sums", "Sums", "9sums", "_sums", "s" * 33, "sums\n"])
def test_a_name_that_no_document_can_declare_noise_for_is_refused(monkeypatch, name):
    monkeypatch.setattr(Ours, "name", name)
    with pytest.raises(NotDeclared, match="cannot be named in a document"):
        Functions([__name__])


def test_modules_bring_functions_of_either_kind():
    assert {"our_steps", "our_sums", "sums", "gradient"} < {*Functions([__name__])}
    with pytest.raises(NotDeclared, match="defines no Function"):
        Functions(["json"])
    with pytest.raises(NotDeclared, match="can be imported"):
        Functions(["no.such.module"])
