"""Moments and cells over HTTP are those in memory, bit by bit; a kill at any point costs one charge."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from maskedlark.adserver.combining import Answered
from maskedlark.adserver.requests import Requests
from maskedlark.audit import colluding
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.exact import cells as exact_cells
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Relu
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells, CellsArguments, DescribedLargest, DescribedTable
from maskedlark.functions.moments import Moments, MomentsArguments
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.training.client import Client
from maskedlark.workflow import Workflow
from tests.integration.taught import FEATURES, RECORDS, frozen, table
from tests.unit.training.cases import Repeats

BINARY, CLASSES = "visits", "baskets"
SETTINGS = f"""
k = 20
values.basket = [0, 2]
budget = {{epsilon = 95.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 90.0, delta = 1e-3}}, coalition = {{epsilon = 95.0, delta = 1e-3}}}}
[[models]]
tag = "{BINARY}"
columns = [{{kind = "bytes", count = {FEATURES}}}]
labels = [{{kind = "binary"}}]
gradient_bound = 1.0
[[models]]
tag = "{CLASSES}"
columns = [{{kind = "bytes", count = {FEATURES}}}]
labels = [{{kind = "categorical", value = "basket", classes = 3}}]
gradient_bound = 1.0
[mechanisms]
sums = {{kind = "laplace", noise_floor = 1.0}}
moments = {{kind = "gaussian", noise_floor = 0.1}}
cells = {{kind = "laplace", noise_floor = 0.1}}
"""


class Dies(Exception):
    """A kill, as far as a process can do it to itself."""


Asked = MomentsArguments | CellsArguments


def function(asked: Asked) -> Moments | Cells:
    return Moments() if isinstance(asked, MomentsArguments) else Cells()


def arguments(tag: str, clip: float = 0.7) -> MomentsArguments:
    """Of hidden numbers for classes, of the features for a binary label."""
    if tag == BINARY:
        network = Network((Layer(Linear("w0", "b0", FEATURES, 1)),), (BinaryCrossEntropy(),))
        sent = Quantised(np.zeros(network.size, np.int16), (0, 0), ())
    else:
        layers = Layer(Linear("w0", "b0", FEATURES, 5)), Layer(Linear("w1", "b1", 5, 3), Relu())
        network = Network(layers, (SoftmaxCrossEntropy(3),))
        values = np.random.default_rng(5).integers(-127, 128, network.size).astype(np.int16)
        values[-18:] = 0
        sent = Quantised(values, (7, 7, 0, 0), (6,))
    described = model.describe(network, fraction=16)
    return MomentsArguments(tag=tag, model=described, weights=weights.to_text(sent), clip=clip)


def counted(tag: str, first: int = 0, **part) -> CellsArguments:
    """Labels by the largest of six outputs, of a binary label ones alone. `first`: of another network."""
    network = Network((Layer(Linear("w0", "b0", FEATURES, 6)),), ())
    values = np.random.default_rng(first).integers(-127, 128, network.size).astype(np.int16)
    sent = weights.to_text(Quantised(values, (7, 7), ()))
    table = DescribedTable(cells=DescribedLargest(count=6), ones=tag == BINARY and not part)
    return CellsArguments(tag=tag, model=model.describe(network), weights=sent, tables=(table,), **part)


@dataclass
class Services:
    """Running helpers, and a dataset for two and for three of them."""

    made: LocalCluster
    client: Client
    documents: dict[int, Document]

    def ask(self, helpers: int, asked: Asked, noise: float = 2.0) -> Answered:
        return self.client.ask(function(asked), asked.model_dump(mode="json"), [f"of-{helpers}"], noise)

    def reconnect(self) -> None:
        """Another process would begin like this."""
        self.client.close()
        self.client = self.made.client()

    def restart(self, place: int) -> None:
        process = self.made.helpers[place].process
        process.kill()
        process.start()

    def charges(self, helpers: int) -> list[list[bytes]]:
        """The requests that each helper's own ledger has charged, of all documents."""
        query = text("SELECT request FROM ledger_lines WHERE request IS NOT NULL")
        found = []
        for helper in self.made.helpers[:helpers]:
            with colluding.reading(helper.folder) as connection:
                found.append([bytes(each) for (each,) in connection.execute(query)])
        return found

    def in_memory(self, answered: Answered, asked: Asked) -> list[list[Any]]:
        """The same question to the same records, seeds and noise, without services."""
        document, (receipt, *_) = answered.document, answered.receipts.values()
        helpers = self.made.helpers[: len(document.helpers)]
        (digest,) = receipt.datasets
        seeds = []
        for helper in helpers:
            query = text("SELECT seed FROM ledger_lines WHERE number = :number")
            with colluding.reading(helper.folder) as connection:
                number = {"number": answered.receipts[helper.name].number}
                seeds.append(bytes(connection.execute(query, number).scalar_one()))
        way = Workflow(
            document,
            [helper.identity for helper in helpers],
            SystemClock(),
            SystemRandomness(),
            noise=[Repeats(seed) for seed in seeds],
        )
        held = [{asked.tag: colluding.records(each.folder, document, digest, asked.tag)} for each in helpers]
        seed = colluding.shared_seed(helpers[0].folder, document, digest)
        way.hold("own", Purpose.TRAIN, held, bytes.fromhex(digest), seed)
        found = way.ask(function(asked), asked.model_dump(mode="json"), ["own"], answered.noise)
        way.close()
        return numbers(found)


@contextmanager
def running(folder) -> Iterator[Services]:
    with local_cluster(folder, SETTINGS, SystemRandomness(), 3) as made:
        services = Services(made, made.client(), {3: made.document})
        try:
            frozen(made, services.client, "of-3")
            services.documents[2] = replace(made, helpers=made.helpers[:2]).publish(SETTINGS)
            frozen(made, services.client, "of-2")
            yield services
        finally:
            services.client.close()


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[Services]:
    with running(tmp_path_factory.mktemp("services")) as made:
        yield made


def numbers(answered: Answered) -> list[list[Any]]:
    """All of an answer: which rows are there, and what they hold."""
    (table,) = answered.tables
    return [list(table.rows), *(each.tolist() for each in table.columns)]


def check(services: Services, answered: Answered, asked: Asked) -> None:
    """Bit by bit as in memory, and within the noise of all helpers of what the labels say."""
    assert numbers(answered) == services.in_memory(answered, asked)
    found, truth, error = (
        _moments(answered, asked) if isinstance(asked, MomentsArguments) else _counts(answered, asked)
    )
    # Seven standard deviations of normal noise: chance below 1e-10. Of Laplace's 20: below 1e-9.
    assert np.abs(found - truth).max() < (7 if isinstance(asked, MomentsArguments) else 20) * error


def _moments(answered: Answered, asked: MomentsArguments) -> tuple[np.ndarray, np.ndarray, float]:
    """What was found, the truth, and the deviation of the noise."""
    network, (x, y) = asked.model.network, table()
    phi = Representation(network, weights.from_text(network, asked.weights), asked.clip)
    rows, factors = phi.rows(x)
    outputs = network.losses[0].outputs
    targets = y[:, None] if outputs == 1 else np.eye(outputs, dtype=int)[y]
    error = phi.top * (1 if outputs == 1 else np.sqrt(2)) * answered.noise * np.sqrt(answered.helpers)
    assert len(x) == RECORDS
    truth = targets.T @ (rows * factors[:, None])
    return answered.tables[0].columns[0].reshape(outputs, phi.width), truth, error


def _counts(answered: Answered, asked: CellsArguments) -> tuple[np.ndarray, np.ndarray, float]:
    """The same of cells, of which those below k are absent."""
    assert asked.model is not None
    network, (x, y), (own,) = asked.model.network, table(), asked.tables
    sent = weights.from_text(network, asked.weights)
    (cells,) = exact_cells.cells(network, sent, x, [own.cells.partition()])
    sizes = np.bincount(cells, minlength=6)
    assert list(answered.tables[0].rows) == [(cell,) for cell in np.flatnonzero(sizes >= 20).tolist()]
    wanted = [1] if own.ones else range(3)
    truth = np.array([[((cells == cell) & (y == label)).sum() for label in wanted] for cell in range(6)])
    found = own.dense(answered.tables[0].rows, answered.tables[0].columns[0])
    scale = answered.noise * (1 if own.ones else 2)
    return found, np.where(sizes[:, None] >= 20, truth, 0), scale * np.sqrt(2 * answered.helpers)


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("tag", [BINARY, CLASSES])
@pytest.mark.parametrize("make", [arguments, counted])
def test_the_numbers_over_http_are_those_in_memory(services, helpers, tag, make):
    asked, before = make(tag), services.charges(helpers)
    answered = services.ask(helpers, asked)
    check(services, answered, asked)
    assert list(answered.receipts) == [each.name for each in services.made.helpers[:helpers]]
    for receipt in answered.receipts.values():
        assert (receipt.function, receipt.tag, receipt.charge.columns) == (function(asked).name, tag, 1)
    assert [len(each) for each in services.charges(helpers)] == [len(each) + 1 for each in before]


@pytest.mark.long
@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("part", ["held_out", "training"])
def test_cells_of_a_hidden_part_over_http_are_those_in_memory(services, helpers, part):
    asked = counted(CLASSES, part=part, held_out=0.4)
    answered = services.ask(helpers, asked)
    assert numbers(answered) == services.in_memory(answered, asked)
    assert [len(each) for each in numbers(answered)[1]] == [18], "every cell and label, whatever it holds"


POINTS = {
    "before it is sent": ("maskedlark.adserver.requests.Requests.begin", False),
    "charged, and not heard": ("maskedlark.adserver.requests.Requests.answer", True),
    "charged by the first": ("maskedlark.adserver.queries.at_once", False),
    "charged by all": ("maskedlark.adserver.queries.combine", False),
}


SHORT = {
    (arguments, "charged, and not heard"),
    (arguments, "charged by all"),
    (counted, "charged, and not heard"),
}


@pytest.mark.parametrize(
    ("make", "point"),
    [
        pytest.param(make, each, marks=() if (make, each) in SHORT else pytest.mark.long)
        for make in (arguments, counted)
        for each in POINTS
    ],
)
def test_a_kill_costs_one_charge_and_changes_no_bit(services, make, point, monkeypatch):
    """The caller dies at this point, and a helper is killed; the same question is finished."""
    number, (place, seen) = list(POINTS).index(point), POINTS[point]
    asked = arguments(BINARY, clip=0.3 + 0.1 * number) if make == arguments else counted(BINARY, 1 + number)
    answers: list[bytes] = []
    before = services.charges(2)

    def dead(*given):
        answers.extend(each for each in given if isinstance(each, bytes))
        raise Dies

    with monkeypatch.context() as patch:
        patch.setattr(place, dead)
        with pytest.raises(Dies):
            services.ask(2, asked)
    services.reconnect()
    services.restart(number // 2)
    (pending,) = services.client.pending()
    stored: dict[str, bytes] = {}
    keep = Requests.answer

    def kept(self, name, helper, data):
        stored[helper] = data
        keep(self, name, helper, data)

    monkeypatch.setattr(Requests, "answer", kept)
    answered = services.ask(2, asked)
    assert answered.request == pending.id
    assert services.client.pending() == []
    if seen:  # What was lost on the way came again.
        assert answers == [stored["helper-0"]]
    check(services, answered, asked)
    assert [len(each) for each in services.charges(2)] == [len(each) + 1 for each in before]


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (arguments, {"tag": "others"}),
        (arguments, {"clip": 1e9}),
        (arguments, {"weights": "AAAA"}),
        (arguments, {"labels": [1]}),
        (arguments, {"model": {}}),
        (counted, {"weights": "AAAA"}),
        (counted, {"tables": [{"cells": {"kind": "largest", "count": 7}}]}),
        (counted, {"part": "held_out"}),
    ],
)
def test_what_is_wrong_is_refused_and_costs_nothing(services, make, change):
    asked = make(BINARY)
    before, given = services.charges(2), asked.model_dump(mode="json") | change
    with pytest.raises(MaskedLarkError):
        services.client.ask(function(asked), given, ["of-2"], 2.0)
    assert services.client.pending() == []
    assert services.charges(2) == before


ASK = """
import json, sys
from maskedlark.functions.cells import Cells
from maskedlark.functions.moments import Moments
from maskedlark.training.client import Client
config, name, given = sys.argv[1:]
print("ready", flush=True)
function = {"cells": Cells, "moments": Moments}[name]()
Client.from_config(config).ask(function, json.loads(given), ["of-2"], 20.0)
"""


@pytest.mark.long
def test_kills_at_any_moment_cost_one_charge(services):
    """Real kills: of the caller's process, or of a helper, somewhere between asking and the answer."""
    chance = random.Random(18)
    for number in range(12):
        asked = counted(BINARY, 100 + number) if number % 2 else arguments(BINARY, clip=1.0 + number / 64)
        before, given = services.charges(2), json.dumps(asked.model_dump(mode="json"))
        caller = subprocess.Popen(
            [sys.executable, "-c", ASK, str(services.made.config), function(asked).name, given],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert caller.stdout is not None
        with caller:
            assert caller.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.25)
            if number % 3 < 2:
                services.restart(number % 3)
                assert caller.wait(120) == 0
            else:
                caller.kill()
        for pending in services.client.pending():
            # With helpers that go away once more meanwhile.
            again = threading.Timer(chance.random() * 0.05, services.restart, [number % 2])
            again.start()
            answered = services.ask(2, asked, 20.0)
            again.join()
            assert answered.request == pending.id
            check(services, answered, asked)
        made = [len(after) - len(own) for own, after in zip(before, services.charges(2), strict=True)]
        # A caller that was killed before it had asked has charged nothing.
        assert made in ([1, 1], [0, 0] if number % 3 == 2 else [1, 1])
        assert services.client.pending() == []
