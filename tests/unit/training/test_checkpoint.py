import numpy as np
import pytest
import torch

from maskedlark.core import field
from maskedlark.training.checkpoint import Run, kept
from maskedlark.training.errors import OtherRun
from tests.unit.training.cases import model


def begin(run):
    with run.begun():
        pass


def test_nothing_is_loaded_where_nothing_was_saved(tmp_path):
    assert Run(tmp_path / "new", b"").load([model()]) is None


def test_the_first_request_stays(tmp_path):
    folder = tmp_path / "new"
    assert kept(folder) is None
    for _ in range(2):
        begin(Run(folder, b"first"))
    with pytest.raises(OtherRun, match="another run was begun"):
        begin(Run(folder, b"second"))
    assert kept(folder) == b"first"


def test_everything_is_put_back(tmp_path):
    net, other = model(), model(seed=1)
    optimiser, again = (torch.optim.Adam(each.parameters(), lr=0.1) for each in (net, other))
    net(torch.ones(1, 6)).sum().backward()
    optimiser.step()
    Run(tmp_path, b"").save(3, [net, optimiser])
    assert Run(tmp_path, b"").load([other, again]) == 3
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
    assert torch.equal(
        again.state[next(other.parameters())]["exp_avg"], optimiser.state[next(net.parameters())]["exp_avg"]
    )


@pytest.mark.parametrize("data", [b"", b"no checkpoint", b"PK\3\4 and no more"])
def test_a_damaged_checkpoint_is_said_to_be_none(tmp_path, data):
    (tmp_path / "checkpoint.pt").write_bytes(data)
    with pytest.raises(OtherRun, match="is no checkpoint of a run"):
        Run(tmp_path, b"").load([model()])


def test_another_model_is_named(tmp_path):
    Run(tmp_path, b"").save(1, [model()])
    with pytest.raises(OtherRun, match="holds another Sequential than this"):
        Run(tmp_path, b"").load([model(3)])


def test_answers_are_kept_until_the_next_checkpoint(tmp_path):
    run, total = Run(tmp_path, b""), np.array([1, 5, field.P - 1], np.int64)
    one, other = b"1" * 32, b"2" * 32
    assert run.answered(0, one) is None
    run.keep_answer(0, one, total)
    run.keep_answer(1, one, total[:0])
    found = Run(tmp_path, b"").answered(0, one)
    assert found is not None
    assert found.tolist() == total.tolist()
    assert run.answered(0, other) is None, "of another body"
    assert run.answered(2, one) is None
    run.save(2, [model()])
    assert run.answered(0, one) is None
    assert run.answered(1, one) is None


def test_another_request_takes_the_place_of_one_that_nobody_charged(tmp_path):
    run = Run(tmp_path, b"first")
    begin(run)
    run.replace(b"second")
    assert kept(tmp_path) == b"second"
    begin(run)
    begin(Run(tmp_path, b"second"))
