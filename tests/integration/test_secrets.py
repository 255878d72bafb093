"""Nothing secret is in a log, a metric, an error, a page or what a command prints, whatever goes wrong.

Real processes, from upload to answer, with every log at its loudest and a mistake in every service. What
people did and saw, shares, masks, seeds, keys, a database's password and bodies are looked for in every form.
"""

import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.browser.upload import Uploader
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.core import sharing
from maskedlark.helper import keyring
from maskedlark.helper.keyring import Keyring
from maskedlark.parameters.policy import Policy
from maskedlark.parameters.settings import Budget
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate import cluster as cluster_module
from maskedlark.simulate.cluster import DAY_S, LocalCluster
from maskedlark.simulate.services import Process
from maskedlark.web import key_file
from maskedlark.wire import uploads
from maskedlark.wire.columns import Key
from tests.integration import clumsy, planted
from tests.integration.attacker import Attacker
from tests.integration.planted import Needle
from tests.integration.provoking import CAMPAIGN, FEATURES, SHOP, VALUE, provoke
from tests.integration.waiting import next_second
from tests.statistical import sides
from tests.statistical.sides import TAG, population, question

PEOPLE = 150
PASSWORD = "planted-password-6d0e"
ROOT = Path(__file__).parents[2]


class Clumsy(Process):
    """A service with mistakes."""

    def __init__(self, arguments, port=None, server=None):
        super().__init__(["-m", clumsy.__name__, *arguments[2:]], port, server)


@pytest.fixture
def running(tmp_path, monkeypatch):
    """Clumsy services that say all they can, and where."""
    monkeypatch.setattr(cluster_module, "Process", Clumsy)
    with ExitStack() as stack:
        with sides.writing_to(tmp_path / "log"):
            made = stack.enter_context(sides.staged(tmp_path, log_level="DEBUG", serving="metrics_port = 0"))
        yield made, sides.pages(made)


@contextmanager
def shares_of() -> Iterator[list[Needle]]:
    """What the first reports that are made meanwhile are split into: shares, of masks too, and seeds."""
    plain, needles = sharing.split, []

    def split(*arguments):
        shares = plain(*arguments)
        needles.extend(planted.numbers("share", shares.explicit[:4]))
        needles.extend(
            each
            for seeds in shares.seeds
            for row in seeds[:4]
            for each in planted.octets("seed", row.tobytes())
        )
        return shares

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "split", split)
        yield needles


def people_did() -> list[Needle]:
    texts = [each for word in (CAMPAIGN, SHOP) for each in planted.text("what they saw", word)]
    return [*texts, *planted.number("what they paid", VALUE), *planted.octets("features", FEATURES)]


def keys_of(made: LocalCluster) -> list[Needle]:
    files = [bytes.fromhex(path.read_text().split()[-1]) for path in made.folder.glob("*.key")]
    for helper in made.helpers:
        stored = keyring.read(helper.folder / "keys", helper.name)
        files += [bytes.fromhex(each.secret) for each in stored.opening]
        files += [bytes.fromhex(each.secret) for each in stored.writing]
    assert len(files) == 5 + 2 * 2
    return [each for secret in files for each in planted.octets("key", secret)]


def noise_of(made: LocalCluster) -> list[Needle]:
    """The seeds of noise, as they stand in ledgers."""
    found = []
    for helper in made.helpers:
        with sqlite3.connect(helper.folder / "database" / "helper.sqlite") as ledger:
            found += [row[0] for row in ledger.execute("SELECT seed FROM ledger_lines WHERE seed NOT NULL")]
    assert found
    return [each for seed in found for each in planted.octets("noise", seed)]


def measured(made: LocalCluster) -> list[bytes]:
    keys: list[list[Key]] = [[CAMPAIGN] * PEOPLE, [7] * PEOPLE]
    values = [np.ones(PEOPLE, np.int64), np.full(PEOPLE, VALUE)]
    return [each for some in population(made, SystemRandomness()).measure(keys, values) for each in some]


def trained(made: LocalCluster) -> list[bytes]:
    features = np.tile(np.frombuffer(FEATURES, np.uint8), (PEOPLE, 1))
    labels = [np.ones(PEOPLE, np.int64)]
    made_of = population(made, SystemRandomness()).train(TAG, features, labels)
    return [each for some in made_of for each in some]


def browse(made: LocalCluster) -> None:
    """One real browser: sees, buys, and reports to an ad server that is away, and then to the real one."""
    clock, most = FixedClock(SystemClock().now() - 9 * DAY_S), Budget(epsilon=100, delta=1e-3)
    trusted = tuple(helper.identity for helper in made.document.helpers)
    policy = Policy(trusted_helpers=trusted, max_budget=most, max_coalition=most)
    store = Store(made.folder / "browser.sqlite")
    browser = Browser(store, made.parameters, policy, clock, made.rng)
    browser.register_source(
        made.origin, Kind.CLICK, SHOP, {"campaign": CAMPAIGN, "place": 7}, {TAG: FEATURES}
    )
    browser.register_trigger(made.origin, SHOP, {"bought": 1, "euros": VALUE})
    clock.seconds = SystemClock().now()
    browser.report_due()
    outbox = Outbox(store, made.origin)
    for address in ("http://127.0.0.1:1", made.adserver.address):
        Uploader(address, made.http, SystemClock(), made.rng, outbox).send_due()
    store.close()


def commands(made: LocalCluster) -> Iterator[tuple[str, bytes]]:
    """What the ad server's own commands print. A table by campaign would name it: that is the answer."""
    for noise, code in (("20", 0), ("0.01", 1)):
        done = run("maskedlark", "query", "--config", made.config, "--value", "euros", "--noise", noise)
        assert done.returncode == code, done.stdout
        yield f"query --noise {noise}", done.stdout


def run(module: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env={"PATH": "", "PYTHONWARNINGS": "default", **environment},
        timeout=120,
        check=False,
    )


def while_it_waits(*arguments: object) -> tuple[int, bytes]:
    """How a service ends that is told to while it waits for its database, and all that it said."""
    command = [sys.executable, "-m", "maskedlark", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if b"waiting for the database" in line:
                process.terminate()
        return process.wait(), b"".join(lines)


def rest_of(process: Process) -> bytes:
    """All that a service still has to say on its standard output, when it was told to end."""
    assert process._running is not None
    assert process._running.stdout is not None
    process._running.terminate()
    return process._running.stdout.read().encode()


def test_nothing_secret_is_in_a_log_a_metric_an_error_or_what_a_command_prints(running, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "maskedlark")
    (made, pages), log = running, tmp_path / "log"
    with shares_of() as needles:
        reports, others = measured(made), trained(made)
        browse(made)
        again = measured(made)
    needles += [*people_did(), *keys_of(made), *planted.octets("body", reports[20][300:332])]
    made.upload([reports[at : at + 50] for at in range(0, len(reports), 50)])
    made.upload([others])
    end = next_second()
    with made.client() as client:
        client.select("monday", 0, end)
        client.send("monday")
    said = [*commands(made)]
    attacker = Attacker(made)
    frozen = attacker.dataset("planted", made.document, again[9:])
    answer = attacker.ask(question(frozen, "sums"))
    said += provoke(made, again, frozen)
    needles += noise_of(made)
    said += [(f"metrics of {page}", httpx.get(f"{page}/metrics").content) for page in pages]
    said += [("logs", log.read_bytes()), ("the browser's log", caplog.text.encode())]
    kinds = {each.name for each in needles}
    assert kinds >= {"share", "seed", "noise", "key", "body", "features", "what they saw", "what they paid"}
    assert {who: found for who, each in said if (found := planted.found(needles, each))} == {}
    # There was something to look through: of every service a line of a mistake, and lines at every level.
    lines = sides.lines(log)
    mistakes = [each["service"] for each in lines if "an unexpected ValueError" in str(each["message"])]
    assert {*mistakes} == {"parameters", "adserver", "helper"}
    assert b"maskedlark_problems_total" in b"".join(each for who, each in said if "metrics" in who)
    assert "upload to 127.0.0.1 failed" in caplog.text
    # And what is there is found: in an answer what belongs there, and in a log a leak.
    assert planted.found(needles, answer) == {"what they saw"}
    leak = uploads.encode_batch([clumsy.LEAKS + reports[20]])
    headers = {"content-type": uploads.CONTENT_TYPE}
    made.http.post(f"{made.adserver.address}/v2/reports", content=leak, headers=headers)
    assert planted.found(needles, log.read_bytes()) == {"body"}
    last = b"".join(rest_of(each) for each in sides.services(made))
    assert planted.found(needles, last) == set()


# Parties that do not even start.


def settings(folder: Path, party: str, url: str) -> Path:
    """A file that such a party can read, with a database that it cannot reach."""
    identity = key_file.create(folder / "some.key", SystemRandomness())
    public, away = identity.verifying.public.hex(), "http://127.0.0.1:1"
    service = f'parameter_service = "{away}"\nservice_key = "{public}"\n'
    pins = f'[origins]\n"ads.example" = "{public}"\n'
    policy = f"[policy]\ntrusted_helpers = ['{public}']\nmax_budget = {{epsilon = 8, delta = 1e-6}}\n"
    text = {
        "parameters": f'key = "some.key"\n{pins}[helpers]\n',
        "adserver": f'origin = "ads.example"\nkey = "some.key"\ncache = "cache"\n{service}'
        f'origin_key = "{public}"\n',
        "helper": f'name = "helper-0"\nfolder = "state"\naddress = "{away}"\n{service}{pins}{policy}'
        "max_coalition = {epsilon = 40, delta = 1e-6}\n",
    }
    if party == "helper":
        now = SystemClock().now()
        Keyring(folder / "state" / "keys", "helper-0").rotate(identity, away, now, SystemRandomness())
    path = folder / f"{party}.toml"
    path.write_text(f'database = "{url}"\n{text[party]}')
    return path


COMMANDS = [
    pytest.param("adserver", "serve"),
    pytest.param("helper", "serve", marks=pytest.mark.long),
    pytest.param("parameters", "serve", marks=pytest.mark.long),
    pytest.param("datasets", "list", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("party", "command"), COMMANDS)
@pytest.mark.parametrize(
    ("url", "error"),
    [
        (f"postgresql://somebody:{PASSWORD}@127.0.0.1:1/reports", "StorageUnavailable"),
        pytest.param(
            f"mysql://somebody:{PASSWORD}@127.0.0.1/reports", "UnsupportedDatabase", marks=pytest.mark.long
        ),
        pytest.param(
            f"postgresql://somebody:x@{PASSWORD}@127.0.0.1:1/x", "BadConfig", marks=pytest.mark.long
        ),
        pytest.param(
            f"postgresql://127.0.0.1:1/x?password={PASSWORD}", "StorageUnavailable", marks=pytest.mark.long
        ),
    ],
)
def test_a_password_is_not_said_where_a_database_is_not_reached(tmp_path, party, command, url, error):
    config = settings(tmp_path, "adserver" if party == "datasets" else party, url)
    if command == "serve" and error == "StorageUnavailable":
        code, printed = while_it_waits(party, command, "--config", config)
        assert code == 0, printed
    else:
        done = run("maskedlark", party, command, "--config", config)
        code, printed = done.returncode, done.stdout
        assert code == (4 if error == "StorageUnavailable" else 1), printed
        assert error in printed.decode()
    assert planted.found(planted.text("password", PASSWORD), printed) == set()


@pytest.mark.parametrize(("party", "command"), COMMANDS[:3])
def test_a_service_that_crashes_says_where_and_not_why(tmp_path, party, command):
    url = f"postgresql://somebody:{PASSWORD}@127.0.0.1:1/reports"
    config = settings(tmp_path, party, url)
    done = run(clumsy.__name__, party, command, "--config", config, **{clumsy.CRASHES: "yes"})
    assert done.returncode == 1
    (line,) = [json.loads(each) for each in done.stdout.splitlines()]
    assert (line["level"], line["service"], line["error"]) == ("CRITICAL", party, "RuntimeError")
    assert clumsy.__name__ in line["at"] or "__main__" in line["at"]
    assert planted.found(planted.text("password", PASSWORD), done.stdout) == set()


@pytest.mark.long
def test_a_command_that_crashes_says_where_and_not_why(tmp_path):
    config = settings(tmp_path, "adserver", f"postgresql://somebody:{PASSWORD}@127.0.0.1:1/reports")
    done = run(clumsy.__name__, "datasets", "list", "--config", config, **{clumsy.CRASHES: "yes"})
    assert done.returncode == 1
    assert b"RuntimeError: a mistake of ours" in done.stdout
    assert planted.found(planted.text("password", PASSWORD), done.stdout) == set()
