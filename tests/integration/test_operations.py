"""What docs/OPERATIONS.md tells an operator to type, typed: four machines, TLS, real processes on loopback.

Every machine has a folder of its own; they share nothing but `public/`, where public keys are handed around.
"""

import datetime
import ipaddress
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from maskedlark.adserver import config as adserver
from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.services import free_port
from maskedlark.web import key_file
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire import uploads
from tests.integration.waiting import next_second

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "OPERATIONS.md").read_text()
MACHINES = ("parameters", "helper-0", "helper-1", "ads")
OFFLINE = "offline"
"""Where the document key is: nothing runs there."""
PATIENCE_S = 600
"""No assertion is about time; a test that hangs for this long has failed."""
REPORTS = 400


def test_metrics_and_errors_of_the_page_are_ours():
    for room in ("adserver", "helper"):
        import_module(f"maskedlark.{room}.errors")
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name in set(re.findall(r"maskedlark_\w+", PAGE)):
        assert f'"{name.removesuffix("_total")}"' in source, name

    def below(error: type[Exception]) -> Iterator[str]:
        yield error.__name__
        for each in error.__subclasses__():
            yield from below(each)

    named = set(re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+|Expired)`", PAGE)) - {"MemoryMax"}
    assert named <= {*below(MaskedLarkError)}


def blocks() -> list[tuple[str, str]]:
    """Machine and commands of every block that is to be typed, in order."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        head, _, commands = block.partition("\n")
        machine = re.fullmatch(r"# on ([\w-]+)(, .*)?", head)
        assert machine, head
        found.append((machine[1] + (machine[2] or ""), commands))
    return found


def test_all_machines_are_in_the_page():
    assert {machine.partition(",")[0] for machine, _ in blocks()} == {*MACHINES, OFFLINE}


def certificates(folder: Path) -> Path:
    """An authority, and for every machine a certificate of it; returns the authority's."""
    now, authority = datetime.datetime.now(datetime.UTC), ec.generate_private_key(ec.SECP256R1())
    ca = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])

    def made(name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(1))
            .not_valid_after(now + datetime.timedelta(1))
        )
        for each in extensions:
            builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "ca.pem").write_bytes(made(ca, authority, x509.BasicConstraints(ca=True, path_length=None)))
    for machine in MACHINES:
        tls, key = folder / machine / "tls", ec.generate_private_key(ec.SECP256R1())
        tls.mkdir()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, machine)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        (tls / "chain.pem").write_bytes(made(name, key, address))
        (tls / "key.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return folder / "ca.pem"


@dataclass
class Operators:
    """Four machines, and what runs on them."""

    folder: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in MACHINES})
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "public").mkdir()
        for machine in (*MACHINES, OFFLINE):
            (self.folder / machine / "other-disk").mkdir(parents=True)
            (self.folder / machine / "backups").mkdir()
            (self.folder / machine / "public").symlink_to(self.folder / "public")
        trusted = str(certificates(self.folder))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {
            "PATH": path, "SSL_CERT_FILE": trusted, "CURL_CA_BUNDLE": trusted, "no_proxy": "127.0.0.1",
            "COLUMNS": "100", "TERM": "dumb",
        }  # fmt: skip

    def address(self, machine: str) -> str:
        return f"https://127.0.0.1:{self.ports[machine]}"

    def here(self, machine: str, text: str) -> str:
        """The text with the addresses of this loopback. Nothing else is changed."""
        for name in MACHINES:
            text = text.replace(f"https://{name}.example:8443", self.address(name))
        text = text.replace("port = 8443", f"port = {self.ports.get(machine)}")
        return text.replace('host = "0.0.0.0"', 'host = "127.0.0.1"').replace("= 9100", "= 0")

    def type(self, machine: str, commands: str) -> str:
        """Type a block; returns what it printed. A command that ends with & goes on running."""
        said, waiting = "", ""
        for line in self.here(machine, commands).splitlines(keepends=True):
            if line.endswith(" &\n"):
                said += self.run(machine, waiting)
                waiting = ""
                self.start(machine, line.removesuffix("&\n"))
            else:
                waiting += line
        return said + self.run(machine, waiting)

    def run(self, machine: str, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder / machine,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def start(self, machine: str, command: str) -> None:
        with (self.folder / machine / "log").open("w") as log:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self.folder / machine,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.running[machine] = process
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening on {self.address(machine)}\n", self.log(machine)
        assert process.stdout.readline().startswith("metrics on http://127.0.0.1:")

    def log(self, machine: str) -> str:
        return (self.folder / machine / "log").read_text()

    def stop(self) -> None:
        """As a service manager does."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        codes = {machine: process.wait(PATIENCE_S) for machine, process in self.running.items()}
        assert codes == dict.fromkeys(MACHINES, 0), [self.log(machine) for machine in MACHINES]

    def report(self) -> int:
        """What browsers do, which are no part of the page."""
        found = adserver.read(self.folder / "ads" / "ads" / "adserver.toml")
        pins = {found.origin: key_file.public(found.origin_key)}
        arguments = (found.parameter_service, key_file.public(found.service_key), self.folder / "browser")
        with ParameterClient(*arguments, SystemClock(), pins) as client:
            document, now = client.latest(found.origin), SystemClock().now()
            keys = [client.keys(each.name, key_file.public(each.identity)) for each in document.helpers]
        sealing = tuple(each.current(now) for each in keys)
        seen = now - document.attribution_window_s - document.delay.max_s - 3600
        population = Population(document, sealing, seen, SystemRandomness(), None)
        assert (document.fake_rate, len(document.decoys)) == (0.05, 2)
        rows, sent = [["spring", "autumn"][i % 2] for i in range(REPORTS)], 0
        for batch in population.measure([rows], [np.arange(REPORTS) % 4 // 2]):
            # The ad server began before there was a document: it asks for it when the first reports come.
            while "later" in (outcomes := self._upload(batch)):
                time.sleep(0.2)
            assert outcomes <= {"stored", "duplicate"}
            sent += len(batch)
        next_second()
        return sent

    def _upload(self, batch: list[bytes]) -> set[str]:
        answer = httpx.post(
            f"{self.address('ads')}/v2/reports",
            content=uploads.encode_batch(batch),
            headers={"content-type": uploads.CONTENT_TYPE},
        )
        return {each.outcome.value for each in uploads.decode_answers(answer.content, len(batch))}


@pytest.fixture
def operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operators]:
    made = Operators(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", made.environment["SSL_CERT_FILE"])
    yield made
    for process in made.running.values():
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.long
def test_from_nothing_to_two_helpers(operators):
    said, sent = {}, 0
    for number, (machine, commands) in enumerate(blocks()):
        if "when reports have come" in machine:
            sent = operators.report()
        said[number] = operators.type(machine.partition(",")[0], commands)
    printed = "".join(said.values())
    assert printed.count('"status":"ready"') == 5
    assert f"{sent} of {sent} reports frozen at every helper" in printed
    assert re.search(r"autumn +\d+", printed)
    assert "version 2" in printed
    operators.stop()
    # On no machine but its own is a key, and none is in a log.
    for machine in MACHINES:
        assert not re.search(r"maskedlark-signing-key", operators.log(machine))
    secrets = {path.relative_to(operators.folder).parts[0] for path in operators.folder.rglob("*.key")}
    assert secrets == {*MACHINES, OFFLINE}
    assert not [*(operators.folder / "ads").rglob("document*.key")]
