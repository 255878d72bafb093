"""What a newcomer typed, and stumbled over: typed again, against running services."""

import json
import re
import shlex

import pytest
from torch import nn

from maskedlark import simulate
from maskedlark.errors import BadArguments
from maskedlark.features import table_file
from maskedlark.fitting import LogisticRegression
from maskedlark.training.predictor import Predictor
from tests.integration import newcomers
from tests.integration.newcomers import edited, typed

SECRETS = ["--key", "campaign", "--value", "bought=0..1", "--value", "euros=0..200", "--label", "bought"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A messy table, compressed, as `maskedlark simulate` starts it; its folder, and what was said."""
    place = tmp_path_factory.mktemp("newcomer")
    path = newcomers.write(newcomers.messy(700), place / "shop.csv.gz")
    said: list[str] = []
    values = {"bought": (0, 1), "euros": (0, 200)}
    with simulate.start(
        table_file.read_table(path), place / "play", keys=["campaign"], values=values, label="bought",
        say=said.append,
    ) as started:  # fmt: skip
        yield started, place / "play", said


def receipts(world):
    started, _, _ = world
    with started.client() as client:
        return len(client.receipts("helper-0"))


def test_what_became_a_feature_is_printed_with_how(world):
    rows = [line.split(maxsplit=1) for line in world[2] if line.startswith("  ")]
    table = {row[0]: " ".join(row[1].split()) for row in rows}
    assert table["campaign"] == "4 categories, and all others 5", "a key is a feature"
    assert table["city"] == "categories, hashed into 32 buckets 32"
    assert table["phone"] == "yes or no 1"
    assert table["id"] == "no feature: a different text in every row"
    assert table["seen"] == "no feature: dates"
    assert table["age"].startswith("number from 1")
    assert int(table["all"]) == len(world[0].encoder)


def test_what_a_source_may_cost_is_printed_against_both(world):
    (line,) = [line for line in world[2] if line.startswith("declared: ")]
    for pair in ("a source may cost ε = 8", 48), ("training ε = 6", 40):
        assert "{} against the ad server alone, {} against it with all helpers but one".format(*pair) in line


def test_an_edited_encoder_is_refused_by_every_command_before_anything_is_charged(world):
    _, folder, _ = world
    right, before = (folder / "encoder.json").read_bytes(), receipts(world)
    try:
        edited(folder).save(folder / "encoder.json")
        for words in (
            "fit run.toml --explain",
            "fit run.toml",
            "train train.toml --plan",
            "train train.toml",
        ):
            command, recipe, *options = words.split()
            last = typed(command, folder / recipe, *options, code=1).stderr.splitlines()[-1]
            assert last.startswith("BadArguments: ConversionModel is declared with the encoder "), words
            assert "`maskedlark simulate` writes a deleted encoder.json anew" in last
    finally:
        (folder / "encoder.json").write_bytes(right)
    assert receipts(world) == before
    assert not (folder / "model.json").exists()
    assert not (folder / "train").exists(), "no run was begun"


def test_an_edited_encoder_is_refused_in_python(world):
    started, folder, _ = world
    before, wrong, people = receipts(world), edited(folder), table_file.read_table(folder / "people.csv")
    model = nn.Sequential(nn.Linear(len(wrong), 1))
    options = {"loss": "bce", "tag": "ConversionModel"}
    with started.client() as client:
        with pytest.raises(BadArguments, match="declared with the encoder"):
            LogisticRegression(client, "ConversionModel", epsilon=0.5, encoder=wrong).fit(people)
        with pytest.raises(BadArguments, match="declared with the encoder"):
            client.training(model, steps=2, sampling="whole", noise=9.0, encoder=wrong, **options)
        with pytest.raises(BadArguments, match="declared with the encoder"):
            client.evaluate(Predictor(model, "bce", "ConversionModel", wrong))
    assert receipts(world) == before


@pytest.mark.long
def test_an_edited_encoder_does_not_reach_a_saved_model(world):
    _, folder, _ = world
    typed("fit", folder / "run.toml")
    before, right = receipts(world), (folder / "encoder.json").read_bytes()
    original, wrong = (folder / "model.json").read_text(), edited(folder)
    try:
        for name in ("right", "again"):
            words = ["predict", folder / "model.json", folder / "people.csv", "--out", folder / f"{name}.csv"]
            typed(*words)
            wrong.save(folder / "encoder.json")
        (folder / "model.json").write_text(json.dumps(json.loads(original) | {"encoder": wrong.to_json()}))
        done = typed("evaluate", folder / "run.toml", code=1)
    finally:
        (folder / "encoder.json").write_bytes(right)
        (folder / "model.json").write_text(original)
    assert (folder / "right.csv").read_bytes() == (folder / "again.csv").read_bytes()
    assert "is declared with the encoder" in done.stderr
    assert receipts(world) == before


def test_a_question_typed_twice_is_charged_once(world):
    words = ["query", "--config", world[1] / "adserver.toml", "--group-by", "campaign", "--value", "bought"]
    first = typed(*words)
    before = receipts(world)
    request = first.stderr.split()[1]
    done = typed(*words, code=1)
    assert done.stderr.startswith("AskedBefore: the same was asked and answered ")
    assert f"--resume {request}` shows that answer again and costs nothing" in done.stderr
    for said in (done.stderr, first.stdout):  # What is printed can be typed as it is.
        (command,) = re.findall(r"`maskedlark (query [^`]+)`", said)
        assert typed(*shlex.split(command)).stdout == first.stdout
    assert receipts(world) == before
    typed(*words, "--again")
    assert receipts(world) == before + 1


def test_a_plan_that_leads_nowhere_says_so(world):
    _, folder, _ = world
    recipe = (folder / "train.toml").read_text()
    changed = re.sub(r"(?m)^epsilon = .*$", "epsilon = 0.0001", recipe)
    changed = re.sub(r"(?m)^sampling.*$", 'sampling = "whole"', changed)  # Nothing has to be searched for.
    (folder / "little.toml").write_text(changed)
    fit, before = (folder / "run.toml").read_text(), receipts(world)
    for epsilon in (0.0001, 0.03):
        changed = re.sub(r"(?m)^epsilon = [\d.]+", f"epsilon = {epsilon}", fit)
        (folder / f"fit{epsilon}.toml").write_text(changed)
    asked = ["--config", folder / "adserver.toml", "--group-by", "campaign", "--value", "bought"]
    for words in (
        ["train", folder / "little.toml", "--plan"],
        ["fit", folder / "fit0.03.toml", "--explain"],
        ["query", *asked, "--epsilon", 0.0001, "--explain"],
    ):
        shown = typed(*words).stdout
        assert any(line.startswith("Nothing will come of it") for line in shown.splitlines()), words[0]
    # As this document composes releases, none costs so little, whatever its noise.
    said = typed("fit", folder / "fit0.0001.toml", "--explain", code=1).stderr
    found = re.search(
        r"cost only ε = 0\.0001: with the most there is, it is (\S+)\. Take a larger ε$", said.strip()
    )
    assert found
    assert 0.0001 < float(found[1]) < 0.03
    assert receipts(world) == before


def test_a_table_that_is_not_there_says_what_to_give(tmp_path, monkeypatch):
    """As README has it, by somebody without a `shop.csv`."""
    monkeypatch.chdir(tmp_path)
    done = typed("simulate", "shop.csv", "--folder", "play", *SECRETS, code=1)
    assert done.stderr.startswith(
        "TableDoesNotFit: shop.csv: there is no such file. Give the path of a table"
    )
    assert "names the columns, as in campaign,age,bought,euros; a row is then spring,34,1,20" in done.stderr
    assert not (tmp_path / "play").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SECRETS, "ColumnDoesNotFit: column 'bought', line 12: no label, as in 60 of 700 rows: fill them"),
        (
            ["--key", "durration", "--label", "bought"],
            "UnknownColumn: the table has no column 'durration'; the nearest is 'visit_duration'",
        ),
        (["--label", "bought", "--kind", "job=hash"], "NotDeclared: 'hash' is no kind of column: there are"),
        (["--label", "age"], "ColumnDoesNotFit: column 'age', line 2: neither 0 nor 1"),
    ],
)
def test_a_table_that_does_not_fit_starts_nothing(tmp_path, words, said):
    table = newcomers.messy(700)
    table["bought"] = ["" if 10 <= row < 70 else each for row, each in enumerate(table["bought"].tolist())]
    path = newcomers.write(table, tmp_path / "shop.csv")
    done = typed("simulate", path, "--folder", tmp_path / "play", *words, code=1)
    assert done.stderr.splitlines()[-1].startswith(said)
    assert not (tmp_path / "play" / "adserver.toml").exists()


def test_a_table_of_two_hundred_columns_in_parquet_is_measured(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(newcomers.wide(600)), tmp_path / "wide.parquet")
    read, play = table_file.read_table(tmp_path / "wide.parquet"), tmp_path / "play"
    values = {"bought": (0, 1)}
    with simulate.start(read, play, keys=["campaign"], values=values, label="bought") as started:
        assert started.encoder is not None
        assert len(started.encoder.columns) == 199
        typed("query", "--config", play / "adserver.toml", "--group-by", "campaign", "--value", "bought")
