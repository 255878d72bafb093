import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from maskedlark import cli

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
ORDER = (
    "demo parameters helper adserver simulate datasets query fit predict train evaluate budget audit "
    "receipts experiment bench"
)
EXAMPLE = "Example: maskedlark "


def walk() -> Iterator[tuple[str, ...]]:
    """Every command that can be run, by the words that call it."""
    for name in cli._COMMANDS:
        for below in getattr(cli.load(name), "commands", None) or [None]:
            yield (name,) if below is None else (name, below)


COMMANDS = list(walk())


def command(words):
    found = cli.load(words[0])
    return found.commands[words[1]] if len(words) > 1 else found


def options(words):
    return {option for each in command(words).params for option in each.opts}


def test_the_order_is_that_of_use():
    assert list(cli._COMMANDS) == ORDER.split()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_that_its_own_parser_takes(words):
    shown = command(words)
    assert shown.help, "it says what it does"
    assert (shown.epilog or "").startswith(EXAMPLE)
    typed = shlex.split(shown.epilog.removeprefix(EXAMPLE))
    assert tuple(typed[: len(words)]) == words
    # Raises for an option that is not there, and for one or an argument that is missing.
    context = shown.make_context(" ".join(words), typed[len(words) :], resilient_parsing=False)
    assert not context.args
    done = RUN(cli.app, [*words, "--help"])
    assert done.exit_code == 0
    assert " ".join(shown.epilog.split()) in " ".join(done.output.split())


@pytest.mark.parametrize("name", sorted({words[0] for words in COMMANDS if len(words) > 1}))
def test_every_group_has_an_example_of_one_of_its_commands(name):
    group = cli.load(name)
    assert (group.epilog or "").startswith(EXAMPLE)
    typed = shlex.split(group.epilog.split("\n")[0].removeprefix(EXAMPLE))
    assert typed[0] == name
    assert not group.commands[typed[1]].make_context(typed[1], typed[2:]).args


SILENT = {
    ("parameters", "draft"),
    ("parameters", "sign"),
    ("parameters", "serve"),
    ("helper", "serve"),
    ("adserver", "serve"),
}
"""A draft is JSON itself, signed or not; a service says where it listens."""


@pytest.mark.parametrize("words", [each for each in COMMANDS if each not in SILENT], ids=" ".join)
def test_a_script_can_have_one_json_object_of_every_command(words):
    assert "--json" in options(words)


def test_the_exit_codes_are_in_the_help():
    assert cli.EXIT_CODES in " ".join(RUN(cli.app, ["--help"]).output.split())


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
