"""A terminal beside a running `maskedlark simulate`: a page's commands, typed as they stand, and again."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from maskedlark import cli
from maskedlark.training.client import Client

PATIENCE_S = 600
"""No assertion is about time; a test that hangs for this long has failed."""
BIN = Path(sys.executable).parent
ENVIRONMENT = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "100", "TERM": "dumb"}
REMEDIES = (
    r"^OtherSimulation: this simulation runs already: another process, \d+, .*: stop it with `kill \d+`",
    r"^AskedBefore: .*: `maskedlark query --config \S+ --resume [0-9a-f]{32}` shows that answer again and "
    "costs nothing; with --again",
)
"""What a command that is typed again may say instead of doing it."""


def consoles(page: str) -> list[list[str]]:
    """Commands that a page tells to type, block by block, each with the lines that it goes on in."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    joined = [block.replace("\\\n", " ") for block in blocks]
    return [re.findall(r"^\$ (.*)$", block, re.MULTILINE) for block in joined]


@contextlib.contextmanager
def playing(simulate: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`maskedlark simulate` in a terminal of its own, once it is ready."""
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            ["bash", "-c", f"exec {simulate}"],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().startswith("Ready"), (folder / "log").read_text()
            yield running
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(PATIENCE_S)


def typed(commands: str, folder: Path) -> str:
    """What commands print in a shell that stops at the first that fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def charged(folder: Path) -> list[str]:
    """What was charged so far, in order."""
    with Client.from_config(folder / "play" / "adserver.toml") as client:
        return [each.what for each in client.budget().dearest.entries]


def typed_again(command: str, folder: Path) -> str:
    """The same once more, in the same world: it does it, or says what to do, and nothing is charged twice."""
    before = charged(folder)
    program, *words = shlex.split(command)
    assert program == "maskedlark", command
    with contextlib.chdir(folder):
        done = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"}).invoke(cli.app, words)
    if done.exit_code:
        said = done.stderr.splitlines()[-1]
        assert any(re.search(remedy, said) for remedy in REMEDIES), (command, done.output)
    assert charged(folder) == before, command
    return done.output


def typed_twice(command: str, folder: Path) -> str:
    """What it prints the first time."""
    said = typed(command, folder)
    typed_again(command, folder)
    return said
