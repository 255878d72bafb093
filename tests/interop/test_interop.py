"""Another language writes reports from the page alone: real helpers accept them, and sums are right.

The JavaScript beside this file was written from docs/PROTOCOL.md and docs/EXACT.md without a look at the
package. It needs Node, and npm with a registry for two packages; where one is missing, tests are skipped.
Labels need Node alone.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskedlark.clock import SystemClock
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.helper.keyring import Keyring
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.wire import uploads
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.columns import ABSENT
from maskedlark.wire.report import MAX_BYTES, Opener
from maskedlark.workflow import View, open_reports
from tests.integration.waiting import next_second
from tests.twins import exact as twin

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "vectors" / "v2"
NEEDS_NODE = (20, 19)
NO_REGISTRY = re.compile(
    r"^npm (?:error|ERR!) (?:network |code (?:ENOTFOUND|EAI_AGAIN|ECONN\w+|E\w*TIMEDOUT|ERR_SOCKET_TIMEOUT|"
    r"ENETUNREACH|EHOSTUNREACH)$)",
    re.MULTILINE,
)
"""What npm says where no registry answers. A lock that does not fit, say, is a mistake of ours."""
RECORDS = 40
SETTINGS = """
k = 5
checks = true
keys = ["campaign", "age"]
fake_rate = 0.0
[budget]
epsilon = 8.0
delta = 1e-6
[training]
adserver = {epsilon = 4.0, delta = 1e-6}
coalition = {epsilon = 32.0, delta = 1e-6}
[mechanisms]
sums = {kind = "laplace", noise_floor = 1.0}
gradient = {kind = "gaussian", noise_floor = 0.5}
[values]
bought = [0, 1]
profit = [-300, 300]
[[models]]
tag = "clicks"
columns = [{kind = "bytes", count = 3}]
labels = [{kind = "binary"}, {kind = "reals", value = "bought", low = 0, high = 1, buckets = 2}]
gradient_bound = 1.0
[[models]]
tag = "mixed"
columns = [
    {kind = "category", size = 70000},
    {kind = "bytes", count = 2},
    {kind = "bag", size = 9, length = 3},
]
labels = [{kind = "integers", value = "profit", low = -300, high = 300}]
candidates = "sample"
sample = 4
gradient_bound = 1.0
"""
Records = list[dict[str, Any]]


def _run(command: list[str], folder: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"VECTORS": str(VECTORS)}
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, input=given, capture_output=True, timeout=300
    )


@pytest.fixture(scope="session")
def node() -> None:
    """Node, of a version that has what is needed."""
    if not shutil.which("node"):
        pytest.skip("Node is not installed")
    version = _run(["node", "--version"], HERE).stdout.decode().strip().removeprefix("v")
    if tuple(map(int, version.split(".")[:2])) < NEEDS_NODE:
        pytest.skip(f"Node {version} is older than {NEEDS_NODE}")


@pytest.fixture(scope="session")
def js(node, tmp_path_factory) -> Path:
    """The JavaScript with its packages: installed by the lock, apart from the checkout."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    folder: Path = tmp_path_factory.mktemp("interop")
    for path in [*HERE.glob("*.mjs"), *HERE.glob("package*.json"), HERE / ".npmrc"]:
        shutil.copy(path, folder)
    ran = _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], folder)
    said = ran.stderr.decode(errors="replace")
    if ran.returncode and NO_REGISTRY.search(said):
        pytest.skip("npm cannot install the packages: no registry is reached")
    assert ran.returncode == 0, f"npm cannot install the packages: {said[-2000:]}"
    return folder


@pytest.mark.parametrize(
    ("said", "unreached"),
    [
        ("npm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno ENOTFOUND\n", True),
        ("npm error code EAI_AGAIN\nnpm error request to https://registry.example/a failed\n", True),
        ("npm ERR! code ECONNREFUSED\n", True),
        ("npm error network This is a problem related to network connectivity.\n", True),
        ("npm error code EINTEGRITY\nnpm error sha512-… integrity checksum failed\n", False),
        ("npm error code EUSAGE\nnpm error `npm ci` can only install with an existing package-lock\n", False),
        ("npm error code E404\nnpm error 404 Not Found - GET https://network.example/ENOTFOUND\n", False),
        ("", False),
    ],
)
def test_a_failure_of_npm_is_excused_only_where_no_registry_is_reached(said, unreached):
    assert bool(NO_REGISTRY.search(said)) == unreached


def test_it_agrees_with_every_vector(js):
    _passes(["vectors.test.mjs"], js)


def test_without_packages_it_agrees_with_the_vectors_of_labels(node):
    _passes(["labels.test.mjs"], HERE)


def _passes(tests: list[str], folder: Path) -> None:
    ran = _run(["node", "--test", "--test-reporter=tap", *tests], folder)
    assert ran.returncode == 0, ran.stdout[-4000:].decode()
    assert b"# fail 0" in ran.stdout
    assert b"# skipped 0" in ran.stdout


def test_its_activations_are_those_of_the_twin(js):
    # Vectors have relu, identity and tanh alone; all are on the page of exact numbers.
    kinds = {"leaky_relu": "leaky", "elu": "elu", "sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}
    sums = [z * 10**power for power in range(7) for z in (-999, -256, -7, -1, 0, 1, 3, 100, 255)]
    cases = [(name, z, 14, h, 77) for name in kinds for z in sums for h in (6, 8)]
    script = """
        import { readFileSync } from 'node:fs';
        import { ACTIVATIONS } from './network.mjs';
        const cases = JSON.parse(readFileSync(0, 'utf8'));
        const made = cases.map(([name, ...numbers]) => ACTIVATIONS[name](...numbers.map(BigInt)));
        console.log(JSON.stringify(made.map(Number)));
    """
    ran = _run(["node", "--input-type=module", "-e", script], js, json.dumps(cases).encode())
    assert ran.returncode == 0, ran.stderr.decode()
    expected = [
        twin.activation({"kind": kinds[name], "k": k, "exponent": h}, z, e)[0] for name, z, e, h, k in cases
    ]
    assert json.loads(ran.stdout) == expected


def _job(made: LocalCluster, aggregate: Records, train: Records) -> bytes:
    """What the JavaScript is asked to report."""
    (signed,) = made.parameters.signed_chain(made.origin)
    assert signed.service_signature is not None
    keys = [Keyring(each.folder / "keys", each.name).configuration.hex() for each in made.helpers]
    signatures = {
        "document_key": made.document_keys[made.origin].verifying.public.hex(),
        "origin_signature": signed.origin_signature.hex(),
        "service_key": made.service_key.verifying.public.hex(),
        "service_signature": signed.service_signature.hex(),
    }
    given: dict[str, Any] = {"document": signed.body.decode(), "signatures": signatures, "keys": keys}
    given |= {"now": SystemClock().now(), "aggregate": aggregate, "train": train}
    return json.dumps(given).encode()


def _made_by(js: Path, asked: bytes) -> list[bytes]:
    ran = _run(["node", "make.mjs"], js, asked)
    assert ran.returncode == 0, ran.stderr.decode()
    return uploads.decode_batch(ran.stdout, 4096, MAX_BYTES)


def _indices(*numbers: int) -> bytes:
    return np.array(numbers, ">u4").tobytes()


@pytest.mark.parametrize("helpers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_helpers_accept_its_reports_and_sums_are_right(js, tmp_path, helpers):
    measured: Records = [
        {
            "keys": {"campaign": ["spring", "autumn"][i % 2], "age": 18 + i % 3},
            "values": {"bought": i % 4 // 3, "profit": 10 * i - 199.5},
            "real": i % 10 > 0,
        }
        for i in range(RECORDS)
    ]
    clicks: Records = [
        {"tag": "clicks", "columns": bytes([i, 0, 255]).hex(), "real": i % 8 > 0}
        | {"values": {"bought": i % 2}, "conversions": i % 2}
        for i in range(RECORDS)
    ]
    columns = [_indices(69_999) + bytes([i, i]) + _indices(1, 8, ABSENT) for i in range(RECORDS)]
    mixed: Records = [
        {"tag": "mixed", "columns": columns[i].hex(), "real": True}
        | {"values": {"profit": i / 2 - 20}, "conversions": 1}
        for i in range(RECORDS)
    ]
    with local_cluster(tmp_path, SETTINGS, SystemRandomness(), helpers) as made:
        reports = _made_by(js, _job(made, measured, [*clicks, *mixed]))
        assert made.upload([reports]) == 3 * RECORDS
        _check_sums(made, measured)
        _check_labels(made, reports[RECORDS:], clicks)


def _check_sums(made: LocalCluster, measured: Records) -> None:
    end, values = next_second(), ["count", "bought", "profit"]
    with made.client() as client:
        for purpose, records in ((Purpose.AGGREGATE, RECORDS), (Purpose.TRAIN, 2 * RECORDS)):
            client.select(purpose.value, 0, end, purpose)
            assert client.send(purpose.value).records == records
            assert not any(client.refusals(purpose.value).values())
        # Six numbers: a false alarm is rarer than one run in a million.
        answered = client.query(values, by="campaign", datasets=["aggregate"], confidence=1 - 1e-7)
    assert len(answered.rows) == 2
    for row in answered.rows:
        real = [each for each in measured if each["real"] and each["keys"]["campaign"] == row.group[0]]
        sums = [sum(each["values"][name] for each in real) for name in values[1:]]
        for estimate, exact in zip(row.numbers, [len(real), *sums], strict=True):
            assert estimate.low <= exact <= estimate.high


def _check_labels(made: LocalCluster, reports: list[bytes], clicks: Records) -> None:
    """All helpers' shares together, which in production nobody has, are the one-hot labels."""
    now, layout = SystemClock().now(), made.document.layout(Purpose.TRAIN)
    terms = Terms(made.document.report_lifetime_s, now)
    openers = [
        Opener(layout, place, Keyring(each.folder / "keys", each.name).opening_keys(now), terms)
        for place, each in enumerate(made.helpers)
    ]
    views = open_reports(openers, reports)
    trained, mixed = ([_trained(view, tag) for view in views] for tag in ("clicks", "mixed"))
    secret = field.to_signed(sharing.combine([each.shares for each in trained]))
    real = np.array([each["real"] for each in clicks])
    label = np.array([each["conversions"] for each in clicks])
    assert (secret[:, :2] == np.eye(2, dtype=int)[label] * real[:, None]).all()
    assert (secret[:, 2:].sum(axis=1) == real).all()
    masks = field.to_signed(sharing.combine([each.shares for each in mixed]))
    assert (masks.sum(axis=1) == 1).all()
    rounded = (masks * mixed[0].candidates[0]).sum(axis=1) - (np.arange(RECORDS) / 2 - 20)
    assert (np.abs(rounded) == np.arange(RECORDS) % 2 / 2).all()
    assert [each[0].tolist() for each in mixed[0].indices] == [[69_999], [1, 8, ABSENT]]


def _trained(view: View, tag: str) -> TrainingRecords:
    records = view.records[tag]
    assert isinstance(records, TrainingRecords)
    return records
