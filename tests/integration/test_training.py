"""Private training over HTTP, against the same run in memory: the same seeds make the same bits."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from maskedlark.adserver.session import Session
from maskedlark.cli import app
from maskedlark.errors import BadArguments
from maskedlark.functions import weights
from maskedlark.ledger.errors import (
    NoSuchSession,
    NoSuchStep,
    RequestIdReused,
    SessionClosed,
    StepOver,
    StepTaken,
)
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import SessionRequest
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.training import load
from maskedlark.training.begin import begin
from maskedlark.training.client import Client
from maskedlark.training.training import Training
from tests.integration.taught import RECORDS, SETTINGS, TAG, flat, frozen, loop, model, table, taken, twin

OPTIONS = {"loss": "bce", "tag": TAG, "noise": 1.0, "delta": 1e-5, "bits": 8}


class Dies(Exception):
    """A kill, as far as a process can do it to itself."""


@dataclass
class Services:
    """Running helpers, a client, and a dataset for two and for three of them."""

    made: LocalCluster
    client: Client
    documents: dict[int, Document]

    def begin(self, helpers: int, net=None, **options) -> Any:
        """A run of a client's."""
        return self.client.training(
            net or model(), datasets=[f"of-{helpers}"], **{**OPTIONS, "steps": 4, **options}
        )

    def in_memory(self, training: Any, helpers: int, chosen=None, **options) -> np.ndarray:
        """The weights of the same run without services."""
        request: SessionRequest = training.sums.request
        (opened, *_) = training.receipts.values()
        local = twin(self.made, self.documents[helpers], request, opened)
        return loop(begin(local, model(), **{**OPTIONS, "steps": 4, **options}), chosen)


@contextmanager
def running(folder) -> Iterator[Services]:
    with local_cluster(folder, SETTINGS, SystemRandomness(), 3) as made, made.client() as client:
        documents = {3: made.document}
        frozen(made, client, "of-3")
        two = replace(made, helpers=made.helpers[:2])
        documents[2] = two.publish(SETTINGS)
        frozen(made, client, "of-2")
        yield Services(made, client, documents)


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[Services]:
    with running(tmp_path_factory.mktemp("services")) as made:
        yield made


@pytest.fixture
def fresh_services(tmp_path_factory) -> Iterator[Services]:
    """For a run that costs so much that what other tests have spent would leave too little."""
    with running(tmp_path_factory.mktemp("services")) as made:
        yield made


def several(number: int) -> list[tuple[int, int]]:
    return [(0, 50), (100 + number, 200)]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [({"batches": 2}, None), ({"sampling": "whole"}, None), ({"sampling": "chosen"}, several)],
)
def test_other_batches_too(services, options, chosen):
    training = services.begin(2, **options, steps=2)
    found = loop(training, chosen)
    assert np.array_equal(found, services.in_memory(training, 2, chosen, **options, steps=2))
    (opened, *_) = training.receipts.values()
    assert opened.session_charge is not None
    assert opened.session_charge == training.plan().session_charge


def test_what_a_session_costs_is_what_was_planned_and_some_of_it_comes_back(services):
    training = services.begin(2, sampling="whole", steps=4)
    step, *_ = training
    step.backward()
    closed = training.close()
    for helper, opened in training.receipts.items():
        before = opened.balance.spent_epsilon - opened.balance.charged_epsilon
        assert opened.balance.charged_epsilon == pytest.approx(training.plan().epsilon, rel=1e-9)
        assert before <= closed[helper].balance.spent_epsilon < opened.balance.spent_epsilon
    with pytest.raises(SessionClosed):
        training.sums.step(3, _body(training, 0), training.network.size)


def test_a_step_is_one_bodys_forever(services):
    training = services.begin(2, sampling="whole", steps=4)
    (session, size) = training.sums, training.network.size
    first, second = _body(training, 0), _body(training, 1)
    training.receipts = session.open()
    found = session.step(0, first, size)
    assert np.array_equal(session.step(0, first, size), found)
    with pytest.raises(StepTaken):  # Another model's weights.
        session.step(0, second, size)
    with pytest.raises(NoSuchStep):
        session.step(4, second, size)
    with pytest.raises(NoSuchSession):  # Another session, which nobody has opened.
        _other(services, session, id="ff" * 16).step(0, second, size)
    for change in (
        {"tag": "other"},
        {"steps": 5},
        {"noise": 2.0},
    ):  # The session's own id for something else.
        with pytest.raises(RequestIdReused):
            _other(services, session, **change).open()
    smaller = {**session.request.arguments, "depth": 0, "fraction": 19}
    with pytest.raises(RequestIdReused):  # Another network.
        _other(services, session, arguments=smaller).open()
    with pytest.raises(BadArguments):  # Who does not choose batches names no records.
        session.step(1, first, size, [(0, 30)])


def test_another_session_over_the_same_records_has_other_steps_and_is_charged(services):
    runs = []
    for _ in range(2):
        runs.append(services.begin(2, batches=2, steps=2))
        runs[-1].receipts = runs[-1].sums.open()
    before, after = (next(iter(run.receipts.values())) for run in runs)
    assert after.slots[0] >= before.slots[0] + before.steps
    assert after.balance.spent_epsilon == pytest.approx(
        before.balance.spent_epsilon + after.balance.charged_epsilon
    )
    shares = [run.sums.step(0, _body(run, 0), run.network.size) for run in runs]
    assert not np.array_equal(*shares)


def test_of_two_runs_that_were_planned_at_once_the_later_takes_later_slots(services):
    runs = [services.begin(2, batches=2, steps=2, noise=30.0) for _ in range(2)]
    assert runs[0].sums.request.slots == runs[1].sums.request.slots
    for run in runs:
        assert len(list(run)) == 2
    first, second = (run.sums.request for run in runs)
    assert second.slots[0] == first.slots[0] + 2


def test_a_run_carries_on_when_a_helper_and_the_trainer_die(services, tmp_path):
    """The trainer here dies as far as a process can do that to itself; in the long run it is killed."""
    options = {"batches": 2, "steps": 6}

    def begun(seed: int) -> Any:
        return services.begin(2, model(seed), folder=tmp_path / "run", checkpoint_every=2, **options)

    first, first_body = begun(0), b""
    ask, asked = first.sums.step, []

    def step(number, body, size, chosen):
        nonlocal first_body
        asked.append(number)
        if number == 0:
            first_body = body
        if number == 1:
            restart(services, 1)
        found = ask(number, body, size, chosen)
        if number == 1:
            assert np.array_equal(ask(1, body, size), found)
            with pytest.raises(StepTaken):  # By another body.
                ask(1, first_body, size)
            with pytest.raises(StepOver):  # Answered before the restart.
                ask(0, first_body, size)
        if number == 3:
            raise Dies
        return found

    first.sums.step = step
    with pytest.raises(Dies):
        loop(first)
    again = begun(7)  # With other first weights, which it must not ask with.
    found = loop(again)
    assert asked == [0, 1, 2, 3]
    assert np.array_equal(found, services.in_memory(again, 2, **options))
    assert again.receipts == first.receipts
    assert [taken(each, again.sums.request.id) for each in services.made.helpers[:2]] == [6, 6]
    charged = next(iter(again.receipts.values())).balance
    later = services.begin(2, **options)
    later.receipts = later.sums.open()
    for opened in later.receipts.values():  # Nothing was charged since, whoever died.
        assert opened.balance.spent_epsilon == pytest.approx(
            charged.spent_epsilon + opened.balance.charged_epsilon
        )


@pytest.mark.parametrize(
    ("helpers", "options"),
    [
        (3, {"batches": 2}),
        # Accounting for Poisson batches is the dear part, at every helper.
        pytest.param(2, {"sampling_rate": 0.5}, marks=pytest.mark.long),
        pytest.param(3, {"sampling_rate": 0.5}, marks=pytest.mark.long),
    ],
)
def test_a_run_over_http_gives_the_weights_of_the_run_in_memory(services, helpers, options):
    training = services.begin(helpers, held_out=0.1, **options)
    found = loop(training)
    assert not np.array_equal(found, flat(model()))
    assert np.array_equal(found, services.in_memory(training, helpers, held_out=0.1, **options))
    assert len(training.receipts) == helpers
    for opened in training.receipts.values():
        assert opened.session_charge is not None
        assert opened.session_charge == training.plan().session_charge
        assert opened.balance.charged_epsilon == pytest.approx(training.plan().epsilon, rel=1e-9)


RUN = """
adserver = "{config}"
datasets = ["of-{helpers}"]
tag = "visits"
model = "model.py:model"
loss = "bce"
steps = {steps}
sampling_rate = 0.5
noise = 1.0
delta = 1e-5
folder = "run"
checkpoint_every = 3
out = "model.pt"
seed = {seed}
optimizer = {{name = "SGD", lr = 0.5, momentum = 0.9}}
scheduler = {{name = "StepLR", step_size = 3, gamma = 0.5}}
"""


@pytest.mark.long
@pytest.mark.parametrize("helpers", [2, 3])
def test_a_run_carries_on_wherever_it_is_killed(fresh_services, tmp_path, helpers):
    """Both helpers and the trainer, each a process of its own, killed at random steps."""
    services = fresh_services
    steps, chance = 40, random.Random(helpers)
    (tmp_path / "model.py").write_text("from tests.integration.taught import model\n")

    def start(seed: int) -> subprocess.Popen[bytes]:
        text = RUN.format(config=services.made.config, helpers=helpers, steps=steps, seed=seed)
        (tmp_path / "run.toml").write_text(text)
        return subprocess.Popen([sys.executable, "-m", "maskedlark", "train", str(tmp_path / "run.toml")])

    def reached() -> int:
        path = tmp_path / "run" / "session.json"
        first = services.made.helpers[0]
        return taken(first, SessionRequest.decode(path.read_bytes()).id) if path.exists() else 0

    trainer, killed = start(0), 0
    victims = [None, 1, None, 0]  # The trainer, or a helper.
    for victim, step in zip(victims, sorted(chance.sample(range(1, 30), len(victims))), strict=True):
        while trainer.poll() is None and reached() < step:
            time.sleep(0.002)
        if victim is None:
            killed += trainer.poll() is None
            trainer.kill()
            trainer.wait()
            trainer = start(killed)  # With other first weights, which it must not ask with.
        else:
            restart(services, victim)
    assert trainer.wait(300) == 0
    assert killed == 2
    found = load(tmp_path / "model.pt", model(9)).model
    options = {"sampling_rate": 0.5, "steps": steps, "folder": tmp_path / "run", "checkpoint_every": 3}
    over = services.begin(helpers, **options)
    assert list(over.keep(*_steppers(over))) == []
    del options["folder"], options["checkpoint_every"]
    assert np.array_equal(flat(found), services.in_memory(over, helpers, **options))
    for each in services.made.helpers[:helpers]:
        assert taken(each, over.sums.request.id) == steps
        opened = [one for one in services.client.receipts(each.name) if over.sums.request.id in one.receipt]
        assert len(opened) == 1


def test_what_was_trained_is_served_as_it_was_trained(services, tmp_path):
    training = services.begin(2, sampling="whole", steps=1)
    loop(training)
    training.save(tmp_path / "model.pt")
    x, _ = table()
    again = load(tmp_path / "model.pt", model(5))
    assert np.array_equal(again.predict(x), training.predictor().predict(x))
    assert len(again.predict(x)) == RECORDS


def test_the_commands_train_and_evaluate(services, tmp_path):
    (tmp_path / "model.py").write_text("from tests.integration.taught import model\n")
    text = RUN.format(config=services.made.config, helpers=2, steps=2, seed=0)
    (tmp_path / "run.toml").write_text(text.replace("sampling_rate = 0.5", "batches = 2"))
    invoke = CliRunner().invoke
    trained = invoke(app, ["train", str(tmp_path / "run.toml"), "--json"])
    assert trained.exit_code == 0, trained.output
    said = json.loads(trained.stdout)
    charged = [each["charged_epsilon"] for each in said["charged"].values()]
    assert charged == pytest.approx([said["plan"]["epsilon"]] * 2)
    found = invoke(app, ["evaluate", str(tmp_path / "run.toml"), "--noise", "1", "--json"])
    assert found.exit_code == 0, found.output
    (label,) = json.loads(found.stdout)["labels"]
    x, y = table()
    right = float(np.mean((load(tmp_path / "model.pt", model()).predict(x) >= 0.5) == y))
    measured = label["accuracy"]
    # Six standard errors, what buckets hide, and scores that 16-bit weights carry over an edge.
    assert abs(measured["value"] - right) < 6 * measured["error"] + measured["coarse"] + 0.02


def _steppers(training: Training):
    optimiser = torch.optim.SGD(training.model.parameters(), lr=0.5, momentum=0.9)
    return optimiser, torch.optim.lr_scheduler.StepLR(optimiser, 3, gamma=0.5)


def restart(services: Services, place: int) -> None:
    process = services.made.helpers[place].process
    process.kill()
    process.start()


def _body(training: Training, seed: int) -> bytes:
    return weights.encode(replace(training, model=model(seed)).quantised())


def _other(services: Services, session: Session, **changes) -> Session:
    request = session.request.model_copy(update=changes)
    return services.client.session(session.document, request.encode())
