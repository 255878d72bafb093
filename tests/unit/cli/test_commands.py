import subprocess
import sys

import pytest
from typer.testing import CliRunner

from maskedlark import cli

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


@pytest.mark.parametrize("name", cli._COMMANDS)
def test_the_list_says_what_the_command_says(name):
    command = cli.load(name)
    assert (command.name, command.help) == (name, cli._COMMANDS[name])
    shown = RUN(cli.app, ["--help"]).output
    assert cli._COMMANDS[name] in " ".join(shown.split())
    whole = RUN(cli.app, [name, "--help"])
    assert whole.exit_code == 0
    assert f"maskedlark {name} " in " ".join(whole.output.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_what_needs_nothing_loads_nothing(arguments):
    code = (
        "import sys; from maskedlark.cli import app; app(standalone_mode=False); "
        "heavy = {'sqlalchemy', 'numpy', 'fastapi', 'httpx', 'torch'} & sys.modules.keys(); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_who_measures_loads_no_web_framework():
    code = (
        "import sys, maskedlark.cli.query, maskedlark.cli.datasets, maskedlark.cli.receipts; "
        "sys.exit(bool({'fastapi', 'starlette', 'uvicorn', 'torch'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_command_is_named():
    done = RUN(cli.app, ["qury"])
    assert done.exit_code == 2
    assert "No such command 'qury'" in done.output
