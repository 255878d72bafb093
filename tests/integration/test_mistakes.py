"""What users mistype: a column, a key, an address, a tag; and what they ask beyond the budget.

Each gets one clear line on standard error, an exit code that means something, and no traceback. Against real
services: one simulation for all of them.
"""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maskedlark import cli, simulate
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.services import free_port
from maskedlark.web import key_file

PEOPLE, EPSILON = 200, 1.0
RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


def people():
    rng = np.random.default_rng(8)
    return {
        "campaign": rng.choice(["spring", "winter"], PEOPLE).tolist(),
        "age": rng.integers(18, 80, PEOPLE).tolist(),
        "device": rng.choice(["phone", "desktop"], PEOPLE).tolist(),
        "bought": rng.choice(["yes", "no"], PEOPLE).tolist(),
        "euros": rng.integers(0, 200, PEOPLE).tolist(),
    }


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    """A simulation in which one person may cost ε = 1."""
    with simulate.start(
        people(),
        tmp_path_factory.mktemp("mistakes"),
        keys=["campaign"],
        values={"bought": (0, 1), "euros": (0, 200)},
        label="bought",
        k=20,
        epsilon=EPSILON,
    ) as made:
        yield made


def typed(given):
    """The name of a case: what was typed."""
    return " ".join(given) if isinstance(given, list) else "-"


def line(*arguments, code=1):
    """The one line that a mistake makes."""
    done = RUN(cli.app, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    # What takes longer than two seconds says so first.
    (found,) = [each for each in done.stderr.splitlines() if not re.search(r" … \(\d+ s\)$", each)]
    return found


def query(simulation, *options, **expected):
    return line("query", "--config", simulation.config, *options, **expected)


def changed(path: Path, old: str, new: str) -> Path:
    """A copy of a file beside it, with a slip in it."""
    text = path.read_text()
    assert old in text
    slipped = path.with_name(f"slipped-{path.name}")
    slipped.write_text(text.replace(old, new))
    return slipped


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", "campain"], "UnknownColumn: the table has no column 'campain'; the nearest is 'campaign'"),
        (["--label", "bougt"], "UnknownColumn: the table has no column 'bougt'; the nearest is 'bought'"),
        (["--features", "agee"], "UnknownColumn: the table has no column 'agee'; the nearest is 'age'"),
        (
            ["--leave-out", "devise"],
            "UnknownColumn: the table has no column 'devise'; the nearest is 'device'",
        ),
        (
            ["--value", "euros"],
            "BadSimulation: --value euros: say its bounds, whole numbers that all may know: "
            "--value euros=0..100",
        ),
        (
            ["--key", "bought"],
            "BadSimulation: column 'bought' is a key, which helpers read, and a secret: choose one of them",
        ),
        (
            ["--k", "500"],
            "BadSimulation: the table has 200 rows, fewer than k = 500: nothing could be asked of them. "
            "Take a larger table, or play with a smaller k",
        ),
    ],
    ids=typed,
)
def test_a_column_that_is_mistyped(tmp_path, options, said):
    table = tmp_path / "people.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(people())
        writer.writerows(zip(*people().values(), strict=True))
    rest = [] if "--label" in options else ["--label", "bought"]
    assert line("simulate", table, "--folder", tmp_path / "play", *rest, *options) == said
    assert not (tmp_path / "play" / "ads.example.document.key").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--value", "bought", "--group-by", "campain"],
            "BadArguments: 'campain' is no declared key; did you mean 'campaign'? There are campaign",
        ),
        (
            ["--value", "bought", "--where", "campagn=spring"],
            "BadArguments: 'campagn' is no declared key; did you mean 'campaign'? There are campaign",
        ),
        (
            ["--value", "bougth"],
            "BadArguments: 'bougth' is no declared value; did you mean 'bought'? There are count, bought, "
            "euros",
        ),
        (
            ["--value", "bought", "--dataset", "mesured"],
            "UnknownDataset: no dataset 'mesured' here; did you mean 'measured'? There are measured, trained",
        ),
    ],
    ids=typed,
)
def test_a_key_a_value_or_a_dataset_that_is_mistyped(simulation, options, said):
    assert query(simulation, *options) == said


def shown(simulation, *options, **expected):
    """`parameters show`, with what is right but for these."""
    right = {
        "--service": simulation.cluster.service.address,
        "--service-key": simulation.cluster.service_key.verifying.public.hex(),
        "--origin-key": simulation.cluster.document_keys["ads.example"].verifying.public.hex(),
    }
    given = right | dict(zip(options[::2], options[1::2], strict=True))
    flat = [each for pair in given.items() for each in pair]
    return line("parameters", "show", "ads.example", *flat, **expected)


def test_a_public_key_that_is_mistyped_or_another(simulation):
    public = simulation.cluster.service_key.verifying.public.hex()
    cut = public[:-1]
    assert shown(simulation, "--service-key", cut) == (
        f"BadKeyFile: '{cut}' is no public key: give its 64 hexadecimal digits"
    )
    other = simulation.cluster.document_keys["ads.example"].verifying.public.hex()
    assert shown(simulation, "--service-key", other).endswith(
        "check --service-key and --origin-key, one of them is another's"
    )


def test_a_request_key_that_is_another(simulation):
    key_file.create(simulation.folder / "another.key", SystemRandomness())
    config = changed(simulation.config, 'key = "ads.example.request.key"', 'key = "another.key"')
    assert line("query", "--config", config, "--value", "bought").startswith(
        "UndeclaredKey: helper-0: sign with the request key that ads.example declares in its newest document"
    )
    with simulation.client() as client:
        (pending,) = client.pending()
        client.forget(pending.id)
    config = changed(simulation.config, 'key = "ads.example.request.key"', 'key = "anothr.key"')
    assert line("query", "--config", config, "--value", "bought") == (
        f"BadKeyFile: {simulation.folder / 'anothr.key'} cannot be read: No such file or directory"
    )


def test_an_address_that_is_mistyped(simulation):
    nobody = f"http://127.0.0.1:{free_port()}"
    assert shown(simulation, "--service", nobody, code=4) == (
        f"ServiceAway: {nobody} cannot be reached (ConnectError); try again"
    )
    assert shown(simulation, "--service", "htp:/127.0.0.1").endswith(
        "'htp:/127.0.0.1' is no address; give one like http://127.0.0.1:8000"
    )
    config = changed(simulation.config, "http://127.0.0.1", "127.0.0.1")
    assert line("query", "--config", config, "--value", "bought") == (
        f"BadConfig: {config}: parameter_service: not an address that begins with https:// (or http://) and "
        "names a host. Write the service's address: parameter_service = "
        '"https://parameters.example"'
    )


def test_a_setting_or_a_file_that_is_mistyped(simulation):
    config = changed(simulation.config, "parameter_service", "parameter_servise")
    assert "parameter_servise is not known; did you mean 'parameter_service'? There are origin" in line(
        "query", "--config", config, "--value", "bought"
    )
    missing = simulation.folder / "adsever.toml"
    assert line("query", "--config", missing, "--value", "bought") == (
        f"BadConfig: {missing} cannot be read: No such file or directory"
    )


def test_a_tag_that_is_mistyped(simulation):
    said = (
        "NotDeclared: no model 'ConversionModle'; did you mean 'ConversionModel'? The document declares "
        "ConversionModel"
    )
    for name, command, *options in (("train.toml", "train", "--plan"), ("run.toml", "fit")):
        run = changed(simulation.folder / name, 'tag = "ConversionModel"', 'tag = "ConversionModle"')
        assert line(command, run, *options) == said


def test_what_is_asked_beyond_the_budget(simulation):
    """Twice: nothing was charged by the first."""
    for _ in range(2):
        assert query(simulation, "--value", "bought", "--value", "euros", code=3) == (
            "BudgetExhausted: helper-0: this would cost ε = 2 against the ad server and against it with all "
            "helpers but one; 1 of 1 is left of a source's budget. With noise 2 it would fit"
        )


def test_a_run_that_would_cost_more_than_is_declared(simulation):
    run = changed(simulation.folder / "train.toml", "epsilon = 0.125", "epsilon = 50")
    said = line("train", run, "--plan", code=3)
    assert said.startswith("OverCeiling: this costs ε = ")
    assert said.endswith(
        "what training may cost against the ad server is 0.75 in all: take more noise, fewer steps or a "
        "lower rate, or ask for epsilon=0.75, against='adserver'"
    )


def fit(simulation, path, old, new, **expected):
    """`fit` with a slip in one of its files, which stays as it was afterwards."""
    before = (simulation.folder / path).read_text()
    try:
        changed(simulation.folder / path, old, new).replace(simulation.folder / path)
        return line("fit", simulation.folder / "run.toml", **expected)
    finally:
        (simulation.folder / path).write_text(before)


def test_a_fit_that_would_cost_more_than_is_left_or_of_another_table(simulation):
    """Each refused, and nothing was charged."""
    assert fit(simulation, "run.toml", "epsilon = 0.125", "epsilon = 50.0", code=3).startswith(
        "BudgetExhausted: helper-0: this would cost ε = 2.5"
    )
    assert fit(simulation, "people.csv", "age,", "agee,") == (
        "UnknownColumn: the table has no column 'age'; the nearest is 'agee'"
    )
    assert fit(simulation, "encoder.json", '"low": ', '"low": -').startswith(
        "BadArguments: ConversionModel is declared with the encoder"
    )
    with simulation.client() as client:
        claimed = [each.claimed() for each in client.receipts("helper-0")]
        assert [each.kind for each in claimed] == ["check-key", "frozen", "frozen"]
        for pending in client.pending():
            client.forget(pending.id)


def test_the_command_itself_ends_so(simulation):
    """A process of its own: nothing but the line on its standard error."""
    command = [sys.executable, "-m", "maskedlark", "query", "--config", str(simulation.config)]
    done = subprocess.run(
        [*command, "--value", "bought", "--value", "euros"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("BudgetExhausted: helper-0: this would cost ε = 2 against ")
    assert done.stderr.count("\n") == 1


def test_a_folder_that_is_in_use(simulation, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("x,y\n" + "1,1\n2,0\n" * 20)
    pid = os.getpid()
    assert line("simulate", table, "--folder", simulation.folder, "--label", "y") == (
        f"OtherSimulation: this simulation runs already: another process, {pid}, runs on "
        f"{simulation.folder}: stop it with `kill {pid}`, and try again, or give another folder"
    )
