"""The table stays true: every edit can still be made, and there are enough of them."""

from pathlib import Path

import pytest

from tests.mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_the_text_to_edit_is_there_once(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_there_are_enough():
    assert len(MUTANTS) >= 15
