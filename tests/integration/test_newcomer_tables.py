"""All that a newcomer types, in the order of an afternoon, on tables of three shapes, against real services.

One is messy, one has two hundred columns, one a hundred thousand rows. Each is started with other options.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from maskedlark.features import Encoder, table_file
from tests.integration import newcomers
from tests.integration.newcomers import edited, typed
from tests.integration.terminal import PATIENCE_S

pytestmark = pytest.mark.long
BOTH = re.compile(
    r"ε = [\d.]+ (against the ad server alone, [\d.]+|against the ad server and) against it with all helpers"
)


class Shape(NamedTuple):
    """A table in a file, and how it is started."""

    path: Path
    options: list[str]
    records: range
    """Fakes among them, six standard deviations around what is expected."""


def messy(folder: Path) -> Shape:
    """Some labels are missing, and every option has its say."""
    table = newcomers.messy(3_060)
    table["bought"] = ["" if 10 <= row < 70 else each for row, each in enumerate(table["bought"].tolist())]
    path = newcomers.write(table, folder / "shop.csv.gz")
    options = "--features age,visits,campaign --features job --kind job=hashed:16 --kind age=number:18..80"
    options += " --drop-unlabelled --psi 2.5 --delta 1e-5 --centre --epsilon 5 --fakes 0"
    return Shape(path, [*_secrets("euros"), *options.split()], range(3_000, 3_001))


def wide(folder: Path) -> Shape:
    """Parquet, and an encoder of one's own."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / "wide.parquet"
    parquet.write_table(arrow.table(newcomers.wide(2_000)), path)
    own = Encoder.fit(table_file.read_table(path), leave_out=["bought", "number 159"])
    own.save(folder / "own.json")
    return Shape(path, [*_secrets(), "--encoder", str(folder / "own.json")], range(2_280, 2_520))


def long(folder: Path) -> Shape:
    """At all defaults, but for two kinds."""
    path = newcomers.write(newcomers.messy(100_000), folder / "shop.csv.gz")
    kinds = ["--kind", "city=hashed:16", "--kind", "age=number:18..80"]
    return Shape(path, [*_secrets("euros"), *kinds], range(118_000, 122_000))


def _secrets(*more: str) -> list[str]:
    named = ["--key", "campaign", "--value", "bought=0..1", "--label", "bought"]
    return [*named, *(f"--value={name}=0..200" for name in more)]


class Typed:
    """`maskedlark simulate`, as somebody has it in a terminal."""

    def __init__(self, table: Path, folder: Path, *words: str) -> None:
        command = [
            sys.executable,
            "-m",
            "maskedlark",
            "simulate",
            table,
            "--folder",
            folder,
            *words,
        ]
        self.running = subprocess.Popen(
            [*map(str, command), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.running.stdout is not None
        self.said = self.running.stdout.readline()

    def end(self, how: int) -> str:
        self.running.send_signal(how)
        return self.running.communicate(timeout=PATIENCE_S)[1]


def started_by(pid: int) -> list[int]:
    """The processes that one has started, and those that these have."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(each) for listed in lists for each in listed.read_text().split()]
    return [*children, *(each for child in children for each in started_by(child))]


def check_gone(pids: Iterable[int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        assert time.monotonic() < end
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Terminal:
    """What somebody types beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, recipe: str, *words: object, code: int = 0) -> Any:
        return typed(command, self.folder / recipe, *words, code=code)

    def query(self, *words: object, code: int = 0) -> Any:
        asked = ["--group-by", "campaign", "--value", "bought", *words]
        return typed("query", "--config", self.folder / "adserver.toml", *asked, code=code)

    def budget(self) -> list[str]:
        return [each["what"] for each in self.entries()]

    def entries(self) -> list[dict[str, Any]]:
        shown = typed("budget", "--config", self.folder / "adserver.toml", "--json").stdout
        entries: list[dict[str, Any]] = json.loads(shown)["documents"][0]["entries"]
        return entries

    def change(self, name: str, source: str, **lines: object) -> str:
        """Another recipe: a copy with some lines changed."""
        text = (self.folder / source).read_text()
        for key, value in lines.items():
            text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}" if value is not None else "", text)
            text = text if count or value is None else f"{key} = {value}\n{text}"
        (self.folder / name).write_text(text)
        return name


def check_encoder(terminal: Terminal) -> None:
    """One that was edited is refused by every command before anything is charged."""
    path = terminal.folder / "encoder.json"
    right, before = path.read_bytes(), terminal.budget()
    try:
        edited(terminal.folder).save(path)
        for command, recipe in (("fit", "run.toml"), ("train", "train.toml")):
            assert "is declared with the encoder" in terminal(command, recipe, code=1).stderr
    finally:
        path.write_bytes(right)
    assert terminal.budget() == before


def check_measuring(terminal: Terminal) -> None:
    """A question twice: charged once."""
    terminal.query("--explain")
    request = terminal.query().stderr.split()[1]
    assert f"--resume {request}` shows that answer again and costs nothing" in terminal.query(code=1).stderr


def check_fitting(terminal: Terminal) -> None:
    """Each twice: the second costs nothing, and says so."""
    assert "Nothing was spent" in terminal("fit", "run.toml", "--explain").stdout
    assert "model.json: charged ε = " in terminal("fit", "run.toml").stdout
    assert "already fitted: nothing was charged" in terminal("fit", "run.toml").stdout
    plan = terminal("evaluate", "run.toml", "--plan").stdout
    assert re.search(r"expect AUC ± [\d.]+, log-loss ± [\d.]+, accuracy ± ", plan)
    for hopeless in (
        terminal("evaluate", "run.toml", "--plan", "--epsilon", "0.000001"),
        terminal("train", terminal.change("tiny.toml", "train.toml", epsilon=0.0001), "--plan"),
        terminal.query("--epsilon", "0.000001", "--explain"),
    ):
        assert "Nothing will come of it" in hopeless.output
    assert re.search(r"^AUC 0\.\d+ ± ", terminal("evaluate", "run.toml").stdout)
    assert "already evaluated: nothing was charged" in terminal("evaluate", "run.toml").stderr


def check_training(terminal: Terminal) -> None:
    """Two runs, of few steps; the first is recalibrated, which nothing undoes, and which is charged once."""
    assert BOTH.search(terminal("train", "train.toml", "--plan").stdout)
    first = terminal.change("first.toml", "train.toml", steps=3)
    second = terminal.change(
        "second.toml", "train.toml", steps=3, seed=3, folder='"second"', out='"second.pt"'
    )
    for recipe in (first, second):
        assert BOTH.search(terminal("train", recipe).stdout)
    terminal("evaluate", first, "--recalibrate")
    assert 0 < terminal.entries()[-1]["epsilon"] <= 0.5, "an evaluation is worth its price"
    kept, before = (terminal.folder / "model.pt").read_bytes(), terminal.budget()
    assert "already evaluated" in terminal("evaluate", first, "--recalibrate").stderr
    assert "It was recalibrated since, and stays so" in terminal("train", first).stdout
    assert (terminal.folder / "model.pt").read_bytes() == kept
    assert terminal.budget() == before


def check_refusals(terminal: Terminal) -> None:
    """Plans that helpers would refuse exit as the command would, and what they advise fits."""
    noisy = terminal.change("noisy.toml", "run.toml", epsilon=None, noise=2.0)
    more = ["--value", "euros", "--noise", 1]
    for refused in (
        terminal.query(*more, "--explain", code=3),
        terminal("fit", noisy, "--explain", code=3),
        terminal("evaluate", "second.toml", "--plan", "--noise", 1, code=3),
    ):
        over = (
            r"which is more than is left: [\d.]+ of [\d.]+ is left of (a source's budget|what training may)"
        )
        assert re.search(over, refused.stdout)
    fits = re.search(r"epsilon = (\S+) fits, or noise", terminal.query(*more, "--explain", code=3).stdout)
    assert fits
    terminal.query(*more[:2], "--epsilon", fits[1], "--explain")


def check_declared(shape: Callable[[Path], Shape], play: Path, terminal: Terminal) -> None:
    """What was asked for is in the document, which everybody is bound by."""
    (document,) = json.loads(typed("budget", "--config", play / "adserver.toml", "--json").stdout)[
        "documents"
    ]
    whole, training = document["limits"][0]["epsilon"], document["limits"][2]["epsilon"]
    settings = (play / "settings.toml").read_text()
    if shape is messy:
        assert (whole, training, document["budget_delta"]) == (5, 3.75, 1e-5)
        assert "gradient_bound = 2.5\n" in settings
        assert "fake_rate = 0.0\n" in settings
    else:
        assert (whole, training) == (8, 6)
        # By the length of the rows: with ψ = 1 most gradients were cut, and probabilities came out halved.
        assert float(re.findall(r"gradient_bound = (\S+)", settings)[0]) > 1.5


def check_feature_table(shape: Callable[[Path], Shape], said: str) -> None:
    """What `simulate` prints of how it read the table."""
    rows = {tuple(line.split()) for line in said.splitlines()}
    assert ("feature", "how", "bytes") in rows
    if shape is messy:
        assert ("age", "number", "from", "18", "to", "80", "1") in rows
        assert ("job", "categories,", "hashed", "into", "16", "buckets", "16") in rows
        assert "60 rows without a label are left out" in said
    if shape is long:
        assert ("campaign", "4", "categories,", "and", "all", "others", "5") in rows, "keys stay features"
        assert ("seen", "no", "feature:", "dates") in rows
        assert ("id", "no", "feature:", "a", "different", "text", "in", "every", "row") in rows


def test_a_simulation_that_is_killed_while_browsers_report_leaves_nothing_and_carries_on(tmp_path):
    """Services, what they were forked from, and what makes reports end with it."""
    path, play = newcomers.write(newcomers.messy(30_000), tmp_path / "shop.csv"), tmp_path / "play"
    words = ["simulate", path, "--folder", play, *_secrets(), "--fakes", "0"]
    command = [sys.executable, "-m", "maskedlark", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        end = time.monotonic() + PATIENCE_S
        while not list(play.glob("reports/*/*")) and not list(play.glob("reports/*.part/*")):
            assert time.monotonic() < end
            assert running.poll() is None
            time.sleep(0.05)
        processes = started_by(running.pid)
        running.kill()
    assert len(processes) > 6
    started = Typed(path, play, *_secrets(), "--fakes", "0")
    try:
        assert json.loads(started.said)["records"] == {"aggregate": 30_000, "train": 30_000}
        check_gone(processes)
    finally:
        started.end(signal.SIGTERM)


@pytest.mark.parametrize("shape", [messy, wide, long])
def test_an_afternoon(shape, tmp_path):
    table, play = shape(tmp_path), tmp_path / "play"
    if shape is messy:  # Nobody knows what those without a label did.
        words = [each for each in table.options if each != "--drop-unlabelled"]
        said = typed("simulate", table.path, "--folder", play, *words, code=1).stderr
        assert "no label, as in 60 of 3060 rows: fill them in, or leave such rows out" in said
    started = Typed(table.path, play, *table.options)
    try:
        records = json.loads(started.said)["records"]
        assert all(count in table.records for count in records.values())
        terminal = Terminal(play)
        check_encoder(terminal)
        check_measuring(terminal)
        check_fitting(terminal)
        check_training(terminal)
        spent = terminal.budget()
        assert spent == ["sums", "moments", "cells", "gradient", "gradient", "cells"]
        if shape is messy:
            check_refusals(terminal)
        pid = started.running.pid
        started_processes = started_by(pid)
        # Four services, and what they were forked from.
        assert len(started_processes) >= 5
        again = typed("simulate", table.path, "--folder", play, *table.options, code=1).stderr
        assert f"another process, {pid}, runs on {play}: stop it with `kill {pid}`" in again
        started.end(signal.SIGKILL)
        started = Typed(table.path, play, *table.options)  # At once: it waits for services that are ending.
        assert json.loads(started.said)["records"] == records, "nobody reported twice"
        check_gone(started_processes)
        assert terminal.budget() == spent
        check_declared(shape, play, terminal)
    finally:
        said = started.end(signal.SIGTERM)
    check_feature_table(shape, said)
    columns = {each.name: len(each.names()) for each in Encoder.load(play / "encoder.json").columns}
    if shape is messy:
        assert (columns.pop("job"), {*columns}) == (16, {"age", "visits", "campaign"})
        assert "centred(rows)" in (play / "model.py").read_text()
    if shape is wide:
        assert len(columns) == 198
        assert "number 159" not in columns
    if shape is long:
        assert (columns["city"], columns["age"]) == (16, 1)
        assert not {"id", "seen", "bought", "euros"} & columns.keys()
