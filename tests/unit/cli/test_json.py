"""What a script reads of commands that make something: one JSON object, and nothing else."""

import json

import pytest
from typer.testing import CliRunner

from maskedlark.cli import app
from maskedlark.web import key_file

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


def run(*words):
    done = RUN(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def public(path):
    return key_file.read(path).verifying.public.hex()


def test_a_key(tmp_path):
    path = tmp_path / "origin.key"
    assert run("parameters", "keys", path) == {"file": str(path), "public_key": public(path)}


@pytest.mark.parametrize(
    ("party", "keys", "options"),
    [
        ("parameters", {"public_key": "service.key"}, []),
        (
            "adserver",
            {"document_key": "document.key", "request_key": "request.key"},
            ["--origin", "ads.example"],
        ),
    ],
)
def test_a_party_that_is_set_up(tmp_path, party, keys, options):
    folder = tmp_path / party
    assert run(party, "init", folder, *options) == {
        "config": str(folder / f"{party}.toml"),
        **{name: public(folder / file) for name, file in keys.items()},
    }


@pytest.mark.parametrize("made", [True, False])
def test_a_helper_that_is_set_up(tmp_path, made):
    folder, key = tmp_path / "h", tmp_path / "h.key"
    options = ["--identity", key] if made else []
    found = run("helper", "init", folder, "--name", "h", "--address", "https://h.example", *options)
    assert found == {"config": str(folder / "helper.toml"), "identity": public(key) if made else None}
