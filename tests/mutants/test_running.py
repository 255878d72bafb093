"""What counts as noticed: a test that failed, and no other end of pytest."""

import pytest

from tests.mutants.__main__ import NOTHING, NothingRan, failing, outcome

FAILED = "F\nFAILED tests/unit/test_some.py::test_it[1 - 2] - assert 1 == 2\n1 failed in 0.1s\n"
NOT_IMPORTED = "ERROR tests/unit/test_some.py - NameError: name 'it' is not defined\n1 error in 0.1s\n"


def test_a_test_that_fails_has_noticed():
    assert failing(1, FAILED) == "tests/unit/test_some.py::test_it[1"
    assert failing(0, "1 passed in 0.1s\n") == ""


@pytest.mark.parametrize("code", [2, 3, 4, 5, -9])
def test_an_edit_with_which_no_test_ran_was_not_noticed(code):
    with pytest.raises(NothingRan, match=f"pytest ended with {code}"):
        failing(code, NOT_IMPORTED)


def test_a_test_that_is_not_there_is_an_error_of_the_table():
    assert outcome(NOTHING._replace(tests="tests/unit/test_no_such.py"))[0] == "BROKEN "
