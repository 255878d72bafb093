"""What a simulation refuses before it starts anything. The rest is in tests/integration."""

import pytest

from maskedlark import simulate
from maskedlark.simulate.errors import BadScene

TABLE = {"age": [20, 30] * 30, "euros": [1, 2] * 30}


@pytest.mark.parametrize("bounds", [(0, 9.5), (0,), 5, ("0", "9")])
def test_bounds_are_two_whole_numbers(tmp_path, bounds):
    with pytest.raises(BadScene, match="'euros': its bounds are two whole numbers"):
        simulate.start(TABLE, tmp_path / "play", values={"euros": bounds})
    assert not (tmp_path / "play").exists()


def test_fewer_rows_than_k_are_refused(tmp_path):
    with pytest.raises(BadScene, match="60 rows, fewer than k = 61"):
        simulate.start(TABLE, tmp_path / "play", values={"euros": (0, 9)}, k=61)
    assert not (tmp_path / "play").exists()
