"""The demo, played once: what it must show, that the README's first screen is it, and how it ends."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from rich.text import Text
from typer.testing import CliRunner

import maskedlark
from maskedlark.cli import app, demo
from maskedlark.cli.demo_steps.people import encoder, people
from maskedlark.cli.output import Screen
from maskedlark.core import field
from maskedlark.randomness import SystemRandomness
from maskedlark.training.client import Client
from tests.playing import played

RUN = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke
README = (Path(__file__).parents[3] / "README.md").read_text()


def test_the_demo_measures_trains_attacks_and_is_what_the_readme_shows(tmp_path_factory, worker_id):
    run = played(tmp_path_factory, worker_id)
    words = re.sub(r"\s+", " ", run.shown)
    measured(run.shown, words)
    trained(words)
    seen(run.shown)
    attacked(words)
    assert f"The page with the plots: {run.page}." in words
    on_the_first_screen(run.shown.replace(str(run.page), "maskedlark-demo.html"))


def test_its_figures_for_programs_are_those_that_it_showed(tmp_path_factory, worker_id):
    run = played(tmp_path_factory, worker_id)
    found, words = run.figures, re.sub(r"\s+", " ", run.shown)
    assert (found["users"], found["helpers"], found["page"]) == (3000, 2, str(run.page))
    assert f"{found['bought']} bought" in words
    for row in found["report"]["campaigns"]:
        buyers = row["buyers"]
        shown = f"│ {row['name']} │ {buyers['estimate']} │ {buyers['low']} … {buyers['high']}"
        assert shown in words
    assert found["report"]["hidden"] == ["summer"]
    points = found["model"]["points"]
    assert [points[0]["epsilon"], points[0]["auc"], points[-1]["steps"]] == [0.0, 0.5, 40]
    for figure in ("steps", "epsilon", "coalition"):
        assert [each[figure] for each in points] == sorted(each[figure] for each in points)
    assert points[-1]["auc"] == found["model"]["private"]["auc"]
    assert f"{points[-1]['auc']:.3f}" in words
    chain = found["receipts"]["chain"]
    assert sum(each["epsilon"] for each in chain) == pytest.approx(found["receipts"]["epsilon"])
    assert sum(each["coalition"] for each in chain) == pytest.approx(found["receipts"]["coalition"])


@pytest.mark.long
def test_three_helpers_do_it_too(tmp_path):
    page = tmp_path / "three.html"
    shown = RUN(app, ["demo", "--users", "1500", "--helpers", "3", "--page", str(page)])
    assert shown.exit_code == 0, shown.output
    seen(shown.stdout)
    assert "The receipts of all 3 helpers verify" in shown.stdout
    assert "helper-2" in page.read_text()


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_it_stops_what_it_started_however_it_is_ended(tmp_path, how):
    demo = [sys.executable, "-m", "maskedlark", "demo", "--users", "1500"]
    started = subprocess.Popen(demo, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    # The services run once their document is published.
    assert any("publishes what" in line for line in started.stdout)
    assert len(of_session(started.pid)) >= 5
    # Ctrl-C goes to all processes of a terminal.
    (os.killpg if how is signal.SIGINT else os.kill)(started.pid, how)
    started.communicate(timeout=600)
    assert started.returncode == 128 + how
    assert of_session(started.pid) == []
    assert not list(tmp_path.iterdir()), "no page of a demo that was not played to its end"


def of_session(session: int) -> list[int]:
    """All processes that a started one left, itself included."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended meanwhile.
        if int(after_name[3]) == session and after_name[0] != "Z":
            found.append(int(status.parent.name))
    return found


def measured(output: str, words: str) -> None:
    """Private beside true, and what is hidden."""
    cell = r" +(-?\d+) +│ +(-?\d+) … (-?\d+) +│ +(\d+) +│"
    rows = re.findall(r"│ (?:autumn|spring|winter) +│" + 2 * cell, output)
    assert len(rows) == 3
    private, true = [], []
    for row in rows:
        for estimate, low, high, truth in (map(int, row[:4]), map(int, row[4:])):
            assert low < estimate < high
            private.append(estimate)
            true.append(truth)
    assert private != true, "six exact answers are not noisy ones"
    limits = "a source may cost ε = 8 against the ad server alone, 16 against it with all helpers but one"
    assert limits in words
    assert "Not shown: summer, of fewer than k = 100 records. The report cost ε = 1.33" in words


def trained(words: str) -> None:
    """Private models that are far better than guessing and no better than one in the clear."""
    names = (
        "fitted from one release",
        "trained by 40 private gradients",
        "trained in the clear",
        "not trained",
    )
    figures = re.findall(rf"│ ({'|'.join(names)}).*? │ (0\.\d{{3}}) │", words)
    assert tuple(name for name, _ in figures) == names
    fitted, private, clear, guessing = (float(figure) for _, figure in figures)
    assert guessing == 0.5
    # In simulations its mean is that in the clear, and its deviation 0.0004.
    assert 0.82 < fitted < clear + 0.02
    # In simulations its deviation is 0.004, and 0.003 less than in the clear its mean: five deviations away.
    assert 0.8 < private < clear + 0.02
    assert 0.82 < clear < 0.84
    assert "It cost ε = 1 against everybody" in words
    assert "ε = 2 against the ad server alone, 4.17 against it with all helpers but one, δ = 1e-05" in words
    assert "The receipts of all 2 helpers verify" in words
    assert "at most ε = 4.33 of 8, and 6.5" in words


def seen(output: str) -> None:
    """Shares that are random and add up to what only the browser knows."""
    cells = re.findall(r"│ (browser|ad server|helper-\d) +│ [^│]+ │ (\S+) +│ (\S+) +│", output)
    rows = {party: row for party, *row in cells}
    for column, value in enumerate(rows["browser"]):
        shares = [int(rows[helper][column], 16) for helper in rows if helper.startswith("helper-")]
        assert sum(shares) % field.P == int(value)
        assert min(shares) > 1 << 20, "a share is a random number of 61 bits"
        assert len(bytes.fromhex(rows["ad server"][column].rstrip("…"))) == 6


def attacked(words: str) -> None:
    assert "+1.000" in words
    assert "finds no state" in words


def on_the_first_screen(output: str) -> None:
    """All parts of the README's screen, in their order, but for randomness. A line of … leaves some out."""
    [screen] = re.findall(r"```console\n\$ scripts/demo\n(.*?)```", README, re.DOTALL)
    left = stable(output)
    for part in map(stable, screen.split("\n…\n")):
        place = left.find(part)
        assert place >= 0, f"the demo does not show: {part}"
        left = left[place + len(part) :]


def stable(output: str) -> str:
    """The words of an output without what differs from run to run: estimates, shares, ids, digests."""
    words = re.sub(r"[^\w\s:,.'=%-]", " ", output).split()
    return " ".join(word for word in words if not re.search(r"\d|^-$|^[0-9a-f]{8,16}$", word))


def test_without_torch_no_model_is_trained_and_the_demo_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    crowd, nobody = people(1500), cast(Client, None)
    assert demo.train(Screen(width=120), nobody, crowd, encoder(crowd), SystemRandomness()) is None
    assert "pip install maskedlark[train]" in capsys.readouterr().out


def test_help_and_version():
    assert "Example: maskedlark demo" in RUN(app, ["--help"]).output
    assert RUN(app, ["--version"]).output == f"maskedlark {maskedlark.__version__}\n"
    assert RUN(app, ["demo", "--users", "3"]).exit_code == 2


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_started(tmp_path):
    refused = RUN(app, ["demo", "--page", str(tmp_path / "nowhere" / "page.html")])
    assert refused.exit_code == 2
    assert "make it first" in " ".join(refused.output.split())
    assert RUN(app, ["demo", "--page", str(tmp_path)]).exit_code == 2
    # In /proc not even root makes a file.
    refused = RUN(app, ["demo", "--page", "/proc/maskedlark-demo.html"])
    assert refused.exit_code == 2
    assert "choose another with --page" in " ".join(refused.output.replace("│", " ").split())


def test_a_page_of_before_is_not_changed_by_looking_whether_it_can_be(tmp_path):
    page = tmp_path / "page.html"
    demo.check_writable(page)
    assert not [*tmp_path.iterdir()]
    page.write_text("of before")
    demo.check_writable(page)
    assert page.read_text() == "of before"


def test_a_page_whose_name_looks_like_markup_is_named_as_it_is():
    page = Path("[bold]plots[/bold].html")
    assert Text.from_markup(demo.link(page)).plain == str(page)
