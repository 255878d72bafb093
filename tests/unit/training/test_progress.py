import io
import re
import sys

import pytest
from rich.console import Console

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon
from maskedlark.training.progress import bar, cost
from tests.unit.training.cases import document, home, model, run


def watched(width: int = 80) -> Console:
    """A terminal that keeps all that was shown on it."""
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def shown(console: Console) -> list[str]:
    """Every line that was drawn, without what moves the cursor."""
    assert isinstance(console.file, io.StringIO)
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", console.file.getvalue()))


def test_the_bar_shows_steps_the_callers_figures_and_what_the_run_costs():
    training = run(home(document()), model(), steps=4, batches=1, noise=40.0)
    console = watched()
    training.console = console
    for step in training:
        step.backward()
        training.show(loss=0.43219)
    last = [line for line in shown(console) if "4/4" in line][-1]
    assert "loss 0.432" in last
    assert cost(training.plan(), 4) in last
    assert len(last) <= 80


def test_the_cost_is_what_stays_charged_if_the_run_is_closed_now():
    plan = run(home(document()), model(), steps=8, batches=1, noise=40.0).plan()
    assert plan.session_charge is not None
    said = [cost(plan, used) for used in range(9)]
    assert said[0].startswith("ε 0 of ")
    for used in range(9):
        kept = sampling.closed(plan.sampling, plan.session_charge, used)
        alone, together = adserver_epsilon(kept), coalition_epsilon(kept)
        assert said[used].startswith(f"ε {alone:.3g} of {plan.epsilon:.3g} ({together:.3g} of ")
    assert said[8].startswith(f"ε {plan.epsilon:.3g} of {plan.epsilon:.3g} ")
    assert said[1] == said[2] != said[3], "it comes back by quarters"


def test_a_run_that_is_charged_nothing_says_so():
    plan = run(home(document()), model()).plan()
    free = type(plan)(None, *list(vars(plan).values())[1:])
    assert cost(free, 3) == "nothing charged"


def test_where_nobody_looks_nothing_is_shown(capsys):
    net = model()
    training = run(home(document()), net)
    training.show(loss=1.0)  # Before it begins, too.
    for _ in training:
        training.show(loss=1.0)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_bar_is_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for _ in run(home(document()), model(), noise=40.0):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert "6/6" in err


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    training = run(home(document()), model(), steps=4, batches=1, noise=40.0)
    console = watched(width)
    with bar(training.plan(), 0, console) as watching:
        assert watching is not None
        watching.show({"loss": 0.431, "auc": 0.8})
        watching.advance()
    assert all(len(line) <= width for line in shown(console))
