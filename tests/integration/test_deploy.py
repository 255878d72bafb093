"""What `deploy/` names is there, and it lets a service have no more than it needs."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical
from typer.testing import CliRunner

from maskedlark.cli import app
from maskedlark.web.config import Serving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PARTIES = ("parameters", "helper", "adserver")
ENDS_WITHIN_S = 5
HARD = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictSUIDSGID": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
    "StateDirectoryMode": "0700",
    "Restart": "on-failure",
    "KillSignal": "SIGTERM",
    "KillMode": "mixed",
    "LimitCORE": "0",
}
# What belongs to nobody's image: whatever is copied comes from these.
BUILT_FROM = {"pyproject.toml", "README.md", "LICENSE", "requirements.lock", "src"}
EXTRAS = {"parameters": "'.[postgresql]'", "adserver": "'.[postgresql]'", "helper": '".[$EXTRAS]"'}


def unit(party: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / f"maskedlark-{party}.service").read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def instructions(party: str) -> list[tuple[str, str]]:
    """The lines of a container file, joined: instruction and the rest."""
    text = (DEPLOY / "containers" / f"{party}.Containerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(first, rest) for first, _, rest in (line.partition(" ") for line in joined.splitlines())]


def known(words: list[str]) -> None:
    """Refuse a command line that our command would not take: every option is in its help."""
    program, *rest = words
    assert Path(program).name == "maskedlark"
    commands = [word for word in rest[:2] if not word.startswith("-")]
    shown = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, [*commands, "--help"])
    assert shown.exit_code == 0, shown.output
    for word in rest:
        assert not word.startswith("--") or word in shown.output


@pytest.mark.parametrize("party", PARTIES)
def test_a_unit_starts_what_there_is_as_its_own_user_and_reaches_its_own_folder(party):
    found, name = unit(party), f"maskedlark-{party}"
    [command] = found["ExecStart"]
    known(shlex.split(command))
    assert command.endswith(f"{party} serve --config /var/lib/{name}/{party}.toml")
    assert (found["User"], found["StateDirectory"]) == ([name], [name])
    assert f"\nu {name} - " in (DEPLOY / "systemd" / "maskedlark.sysusers").read_text()


@pytest.mark.parametrize("party", PARTIES)
def test_a_unit_gives_no_more_than_is_needed(party):
    found = unit(party)
    assert {name: found[name] for name in HARD} == {name: [value] for name, value in HARD.items()}
    assert re.fullmatch(r"\d+[MG]", found["MemoryMax"][0])
    assert int(found["LimitNOFILE"][0]) >= Serving().max_connections + 256
    # It has room to drain for as long as the page says, and to finish.
    assert int(found["TimeoutStopSec"][0]) > 5 + Serving().stop_within_s + ENDS_WITHIN_S


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("party", PARTIES)
def test_systemd_takes_the_unit(party, tmp_path):
    text = (DEPLOY / "systemd" / f"maskedlark-{party}.service").read_text()
    here = Path(sys.executable).parent / "maskedlark"
    path = tmp_path / f"maskedlark-{party}.service"
    path.write_text(text.replace("/opt/maskedlark/bin/maskedlark", str(here)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    # It speaks of other units of the machine too.
    assert [line for line in done.stderr.splitlines() if path.name in line] == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("party", PARTIES)
def test_a_container_runs_what_there_is_and_not_as_root(party):
    found = instructions(party)
    [entry], [command] = (
        [json.loads(rest) for word, rest in found if word == name] for name in ("ENTRYPOINT", "CMD")
    )
    known([*entry, *command])
    assert entry == ["maskedlark", party]
    assert f"/state/{party}.toml" in command
    [user] = [rest for word, rest in found if word == "USER"]
    assert int(user) >= 10_000
    order = [word for word, _ in found]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert [rest.split()[0] for word, rest in found if word == "FROM"] == ["python:3.11-slim"] * 2
    assert ("STOPSIGNAL", "SIGTERM") in found


@pytest.mark.parametrize("party", PARTIES)
def test_no_image_holds_more_than_the_package(party):
    copied = [rest.split() for word, rest in instructions(party) if word in ("COPY", "ADD")]
    sources = {each for words in copied for each in words[:-1] if not words[0].startswith("--from=build")}
    assert sources == BUILT_FROM
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == BUILT_FROM
    [install] = [rest for word, rest in instructions(party) if "pip install" in rest]
    assert install.startswith(
        "/opt/maskedlark/bin/pip download --no-cache-dir --require-hashes --no-deps --dest locked "
    )
    assert "--requirement requirements.lock" in install
    # What is installed comes from there alone, but for torch.
    last = install.rpartition("&&")[2]
    assert "pip install" in last
    assert "--no-index --find-links locked" in last
    assert last.endswith(EXTRAS[party])
    assert (("ARG", "EXTRAS=postgresql,train") in instructions(party)) == (party == "helper")


def test_versions_of_an_image_are_those_of_the_lock(tmp_path):
    """The line that makes constraints of the lock is run as it stands."""
    (tmp_path / "requirements.lock").write_text((ROOT / "requirements.lock").read_text())
    [install] = [rest for word, rest in instructions("helper") if "pip install" in rest]
    [line] = [each for each in install.split("&&") if "constraints.txt" in each and "sed" in each]
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)
    lines = (tmp_path / "constraints.txt").read_text().splitlines()
    assert len(lines) > 30
    assert all(re.match(r"[a-z0-9._-]+==", line) for line in lines)
    assert not any(line.endswith("\\") for line in lines)


def test_the_lock_has_all_that_an_image_installs():
    """Nothing but torch, and what only torch brings, comes without a hash."""
    text = (ROOT / "requirements.lock").read_text()
    locked = {
        canonical(name)
        for name in re.findall(r"^([A-Za-z0-9._-]+)==.*\\\n    --hash=sha256:", text, re.MULTILINE)
    }
    wanted = [
        "maskedlark[postgresql,train]",
        *tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"],
    ]
    seen: set[tuple[str, ...]] = set()
    while wanted:
        needed = Requirement(wanted.pop())
        name = canonical(needed.name)
        if name in ("torch", "setuptools") or (name, *sorted(needed.extras)) in seen:
            continue
        seen.add((name, *sorted(needed.extras)))
        assert name == "maskedlark" or name in locked
        for each in metadata.requires(name) or []:
            inner = Requirement(each)
            if inner.marker is None or any(
                inner.marker.evaluate({"extra": extra}) for extra in ("", *needed.extras)
            ):
                wanted.append(each)
    [pinned] = re.findall(r"torch==([0-9.]+)", (ROOT / "pyproject.toml").read_text())
    assert f"torch=={pinned} " in (DEPLOY / "containers" / "helper.Containerfile").read_text()


@pytest.mark.parametrize("party", PARTIES)
def test_a_reload_ends_no_service(party):
    found = unit(party)
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    # Before it listens for it, SIGHUP ends it, which Restart=on-failure would take for a wish.
    assert found["RestartForceExitStatus"] == ["SIGHUP"]


@pytest.mark.parametrize("party", PARTIES)
def test_the_health_of_a_container_is_asked_where_it_listens(party):
    [check] = [rest for word, rest in instructions(party) if word == "HEALTHCHECK"]
    python, option, code = json.loads(check[check.index("[") :])
    assert (python, option) == ("python", "-c")
    ast.parse(code)
    [command] = [json.loads(rest) for word, rest in instructions(party) if word == "CMD"]
    assert f"http://127.0.0.1:{command[command.index('--port') + 1]}/health" in code


def test_a_helper_that_measures_needs_no_torch():
    code = (
        "import sys, maskedlark.cli.helper, maskedlark.functions as functions; functions.Functions(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
