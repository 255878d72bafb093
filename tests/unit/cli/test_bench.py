"""Benches and experiments: run from a clone, and one line elsewhere."""

import json
import sys

import pytest
from typer.testing import CliRunner

import maskedlark
from maskedlark import cli

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
BENCH = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["OMP_NUM_THREADS"]]))
sys.exit(len(sys.argv) - 2)
"""
RUNNING = """
def main(names, size, out, say, is_fresh):
    say(f"{names} {size!r} {out.name}{' fresh' * is_fresh}")
    return 1 if "fails" in names else 0
"""
FILES = {
    "src/maskedlark/x": "",
    "benches/__init__.py": "",
    "benches/__main__.py": BENCH,
    "benches/timing.py": "",
    "benches/core.py": "",
    "experiments/__init__.py": "",
    "experiments/figures/__init__.py": "NAMES = ('global_dp', 'fails')",
    "experiments/size.py": "Size = str",
    "experiments/running.py": RUNNING,
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An installed package, and a folder that is no clone."""
    monkeypatch.setattr(maskedlark, "__file__", str(tmp_path / "site/maskedlark/__init__.py"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    for name in [each for each in sys.modules if each.split(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "home"


@pytest.fixture
def clone(elsewhere):
    for name, text in FILES.items():
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text(text)
    yield elsewhere
    for name in [each for each in sys.modules if each.split(".")[0] == "experiments"]:
        del sys.modules[name]


@pytest.mark.parametrize(("name", "package"), [("bench", "benches"), ("experiment", "experiments")])
def test_without_a_clone_one_line_says_what_to_do(elsewhere, name, package):
    done = RUN(cli.app, [name, "core"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"NoClone: {package} are in the repository, not in the installed package: clone it, run "
        "scripts/setup there, and give this command in its folder\n"
    )


def test_a_bench_runs_in_a_process_of_its_own_on_one_thread(clone, capfd):
    assert RUN(cli.app, ["bench", "core"]).exit_code == 0
    assert json.loads(capfd.readouterr().out) == [["core"], "1"]
    assert RUN(cli.app, ["bench", "core", "--json"]).exit_code == 1  # It failed, and so does this.
    assert json.loads(capfd.readouterr().out) == [["core", "--json"], "1"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["bench", "coer"], "there is no bench 'coer'; did you mean 'core'? There are core"),
        (["experiment", "globaldp"], "there is no experiment 'globaldp'; did you mean 'global_dp'?"),
        (["experiment", "all", "--quick", "--full"], "give --quick or --full, not both"),
    ],
)
def test_what_there_is_not_is_said(clone, typed, said):
    done = RUN(cli.app, typed)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "'default' results"),
        (["--quick"], "'quick' results-quick"),
        (["--full", "--out", "x"], "'full' x"),
        (["--fresh"], "'default' results fresh"),
    ],
)
def test_an_experiment_is_run_at_its_size_into_its_folder(clone, options, said):
    done = RUN(cli.app, ["experiment", "all", "global_dp", *options, "--json"])
    assert done.exit_code == 0, done.output
    assert done.stderr == f"['all', 'global_dp'] {said}\n"
    assert json.loads(done.stdout)["drawn"] is True


def test_an_experiment_that_fails_says_so(clone):
    done = RUN(cli.app, ["experiment", "fails", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["drawn"] is False
