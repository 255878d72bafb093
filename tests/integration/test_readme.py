"""What README, PAPER and COMMANDS show is what happens. The first screen: `tests/unit/cli/test_demo.py`."""

import ast
import contextlib
import inspect
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score

from maskedlark import cli
from maskedlark.adserver.client import Client
from maskedlark.adserver.errors import AnsweredBefore
from maskedlark.features import Encoder, csv_file
from maskedlark.fitting import LogisticRegression
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.training.begin import begin
from maskedlark.training.predictor import Predictor
from maskedlark.training.training import Training
from tests.integration import newcomers
from tests.integration.terminal import charged, consoles, playing, typed_again, typed_twice

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAPER = (ROOT / "docs" / "PAPER.md").read_text()
COMMANDS = (ROOT / "docs" / "COMMANDS.md").read_text()


def test_the_readme_is_short_and_says_what_it_is_before_it_shows_a_terminal():
    assert len(README.splitlines()) < 150
    assert README.index("Browsers split each conversion into shares") < README.index("```console")


def test_the_calls_of_the_readmes_python_are_calls_that_there_are():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    called = [each for block in blocks for each in ast.walk(ast.parse(block)) if isinstance(each, ast.Call)]
    there: dict[str, Callable[..., Any]] = {
        "Client.from_config": Client.from_config,
        "client.query": Client.query,
        "client.training": begin,
        "training.plan": Training.plan,
        "LogisticRegression": LogisticRegression,
        "model.plan": LogisticRegression.plan,
        "model.fit": LogisticRegression.fit,
        "model.predict_proba": LogisticRegression.predict_proba,
    }
    names = {ast.unparse(call.func): call for call in called}
    assert there.keys() <= names.keys()
    for name, function in there.items():
        call = names[name]
        itself = [None] if name.startswith(("client.", "training.", "model.")) else []
        options = {each.arg: None for each in call.keywords if each.arg}
        inspect.signature(function).bind(*itself, *call.args, **options)


def played(folder: Path, holds: str, text: str = README, **names: Any) -> tuple[dict[str, Any], str]:
    """README's block of Python that holds this, in the folder it is for: its names, and what it printed."""
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if holds in each]
    with contextlib.chdir(folder / "play"), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(block, names)
    return names, printed.getvalue()


def training(folder: Path, text: str = README) -> tuple[torch.nn.Module, str]:
    """As a script in that folder, beside `model.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "play")
        patch.delitem(sys.modules, "model", raising=False)
        names, printed = played(folder, "client.training(", text)
    sys.modules.pop("model", None)
    return names["model"], printed


@pytest.mark.long
def test_all_of_it_is_typed_twice_in_one_world_at_defaults(tmp_path):
    """Over 10,000 rows: δ is a tenth of what it is below, and all sessions share half of it."""
    newcomers.write(newcomers.messy(10_500), tmp_path / "shop.csv")
    ((simulate, fit, evaluate),) = [each for each in consoles(README) if each[0].startswith("maskedlark")]
    with playing(simulate, tmp_path):
        typed_again(simulate, tmp_path)
        assert "model.json: charged ε = " in typed_twice(fit, tmp_path)
        assert re.search(r"^AUC 0\.\d+ ± 0\.\d+, log-loss", typed_twice(evaluate, tmp_path), re.MULTILINE)
        assert charged(tmp_path) == ["moments", "cells"]
        first, again = (training(tmp_path) for _ in range(2))
        assert "against it with all helpers but one" in first[1]
        # The same run: it was charged once, and nothing is trained again.
        assert charged(tmp_path) == ["moments", "cells", "gradient"]
        assert all(map(torch.equal, first[0].parameters(), again[0].parameters()))
        people = csv_file.read_csv(tmp_path / "play" / "people.csv")
        truth = newcomers.messy(10_500)["bought"]
        predicted = Predictor(first[0], "bce", "", Encoder.load(tmp_path / "play" / "encoder.json"))
        # 0.65 to 0.66 in six runs: it has learnt something. How much is tested elsewhere.
        assert roc_auc_score(truth, predicted.predict(people)) > 0.6
        names, printed = played(tmp_path, "client.query(")
        assert sorted(row[0][0] for row in names["report"].rows) == sorted(newcomers.CAMPAIGNS)
        assert "spring" in printed
        # What was asked before is charged again only with a warning, which says how it costs nothing.
        with pytest.warns(AnsweredBefore, match="reuse=True"):
            played(tmp_path, "client.query(")
        # The fit that was typed first costs nothing, and a second run of another folder still fits.
        before = charged(tmp_path)
        _, printed = played(tmp_path, "model.fit(people)")
        assert "costs nothing" in printed
        assert charged(tmp_path) == before
        training(tmp_path, README.replace('"folder": "run"', '"folder": "run 2"'))
        assert charged(tmp_path) == [*before, "gradient"]
        another = README.replace("epsilon=1.0, encoder=encoder)", "epsilon=2.0, encoder=encoder)")
        played(tmp_path, "model.fit(people)", another)
        another = README.replace("epsilon=1.0, encoder=encoder)", "epsilon=1.5, encoder=encoder)")
        with pytest.raises(BudgetExhausted, match=r"; [\d.]+ of \d+ is left of .*With noise [\d.]+ it"):
            played(tmp_path, "model.fit(people)", another)


@pytest.mark.long
def test_its_fit_in_python_is_typed_twice(tmp_path):
    newcomers.write(newcomers.messy(1_500), tmp_path / "shop.csv")
    ((simulate, *_),) = [each for each in consoles(README) if each[0].startswith("maskedlark")]
    with playing(simulate, tmp_path):
        for said in ("Nothing was spent", "costs nothing"):
            names, printed = played(tmp_path, "model.fit(people)")
            assert said in printed
            assert names["model"].predict_proba(names["people"]).shape == (1_500, 2)
            assert charged(tmp_path) == ["moments"]


def test_the_python_example_gives_what_its_comment_says():
    [block] = re.findall(r"```python\n(from maskedlark.*?)```", PAPER, re.DOTALL)
    *setup, estimates, shares = [line for line in block.splitlines() if line]
    names: dict[str, object] = {}
    exec("\n".join(setup), names)
    spring, winter = eval(estimates.split("#")[0], names)
    # Two helpers' Laplace noise of scale 1: beyond 40 more rarely than once in 10^15 runs.
    assert abs(spring - 25) < 40
    assert abs(winter) < 40
    assert len(set(eval(shares.split("#")[0], names)) & {0, 1}) == 0


def test_every_command_is_on_its_page():
    rows = re.findall(r"^\| (`maskedlark [^|]*) \|", COMMANDS, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`maskedlark (\w+)`", row)} == {*cli._COMMANDS}


def test_exit_codes_are_those_of_the_help():
    codes = re.findall(r"^\| (\d+) \| (.*) \|$", COMMANDS, re.MULTILINE)
    assert f"Exit codes: {'; '.join(' '.join(row) for row in codes)}." in str(cli.app.info.epilog)
