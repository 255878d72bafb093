import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from maskedlark.exact.errors import WeightsDoNotFit
from maskedlark.ledger.errors import SlotTaken, StepOver
from maskedlark.training.checkpoint import kept
from maskedlark.training.errors import OtherRun, RunInUse, Untrained
from maskedlark.training.evaluating import evaluation_query
from maskedlark.training.predictor import Predictor
from tests.unit.exact.models import exact_gradient
from tests.unit.training.cases import (
    OPTIMISERS,
    TAG,
    AdaBound,
    document,
    evaluate,
    fit,
    flat,
    gradient,
    home,
    model,
    run,
    table,
)


class Dies(Exception):
    """A kill, as far as a process can do it to itself."""


class Mortal:
    """Helpers that answer, and a trainer that does not live to use what they said."""

    def __init__(self, sums, at):
        self.sums, self.at = sums, at

    def step(self, number, *rest):
        found = self.sums.step(number, *rest)
        if number == self.at:
            raise Dies
        return found

    def __getattr__(self, name):
        return getattr(self.sums, name)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_any_optimiser_learns(name):
    x, y = table()
    net = model()
    training = run(home(document()), net, steps=40, noise=0.05)
    losses = torch.nn.BCELoss()

    def loss():
        return float(losses(torch.from_numpy(training.predictor().predict(x)), torch.from_numpy(y).double()))

    before = loss()
    fit(training, OPTIMISERS[name](net.parameters()))
    assert loss() < before - 0.1


def test_a_scheduler_has_its_say():
    net, other = model(), model()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 3, gamma=0.1)
    fit(run(home(document()), net), optimiser, scheduler)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(0.005)
    fit(run(home(document()), other), torch.optim.SGD(other.parameters(), lr=0.5))
    assert not np.array_equal(flat(net), flat(other))


def test_backward_gives_the_mean_gradient_and_adds_as_torch_does():
    x, y = table()
    net = model()
    training = run(home(document()), net, sampling="whole", noise=0.01, steps=1)
    (step,) = training
    step.backward()
    quantised = training.quantised()
    exact = exact_gradient(training.network, quantised, x, [y], training.clip) / len(x)
    found = gradient(net)
    assert np.abs(found - exact).max() < 6 * training.plan().deviation
    step.backward()  # The same weights: the same step, and not asked anew.
    twice = gradient(net)
    assert np.array_equal(twice, 2 * found)


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("options", [{"sampling_rate": 0.5}, {"batches": 3}, {"sampling": "whole"}])
def test_the_same_seeds_make_the_same_weights(helpers, options):
    found = []
    for _ in range(2):
        net = model()
        fit(run(home(document(helpers)), net, **options), torch.optim.Adam(net.parameters()))
        found.append(flat(net))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], flat(model()))


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("name", ["SGD with momentum", "AdaBound"])
def test_a_run_that_dies_anywhere_carries_on_to_the_same_weights(tmp_path, at, name):
    helpers = home(document())

    def trained(helpers, folder, seed, dies=None):
        net = model(seed=seed)
        optimiser = OPTIMISERS[name](net.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
        training = run(helpers, net, folder=folder, checkpoint_every=2)
        if dies is not None:
            vars(training)["sums"] = Mortal(training.sums, dies)
        fit(training, optimiser, scheduler)
        return flat(net)

    whole = trained(home(document()), tmp_path / "whole", seed=0)
    with pytest.raises(Dies):
        trained(helpers, tmp_path / "killed", seed=0, dies=at)
    # Its first weights were drawn by chance: who begins again has others, and must not ask with them.
    assert np.array_equal(trained(helpers, tmp_path / "killed", seed=7), whole)


class OnceOnly:
    """Helpers that answer steps one after the other, and the last one again for the same body."""

    def __init__(self, home):
        self.home, self.last, self.asked = home, {}, []

    def __getattr__(self, name):
        return getattr(self.home, name)

    def session(self, document, body):
        session = self.home.session(document, body)
        once = self

        class Session:
            def __getattr__(self, name):
                return getattr(session, name)

            def step(self, number, body, size, chosen=()):
                before = once.last.get("number", -1)
                if number not in (before, before + 1) or (number == before and once.last["body"] != body):
                    raise StepOver(f"step {number} after {before}")
                once.last = {"number": number, "body": body}
                once.asked.append(number)
                return session.step(number, body, size, chosen)

        return Session()


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_run_carries_on_though_helpers_answer_no_step_but_the_last_again(tmp_path, at):
    whole = model()
    train(run(home(document()), whole, folder=tmp_path / "whole"))
    helpers, net = OnceOnly(home(document())), model()
    died = run(helpers, net, folder=tmp_path / "died", checkpoint_every=4)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for step in died.keep(optimiser):
        optimiser.zero_grad()
        step.backward()
        if step.number == at:
            break
        optimiser.step()
    again = model()
    train(run(helpers, again, folder=tmp_path / "died", checkpoint_every=4))
    assert np.array_equal(flat(again), flat(whole))
    assert helpers.asked.count(at) == 1, "what was answered is kept, and not asked again"


def train(training):
    fit(training, torch.optim.SGD(training.model.parameters(), lr=0.5))


class Taken:
    """A session whose slots another has."""

    stopped = False

    def open(self):
        raise SlotTaken(40)

    def stop(self):
        self.stopped = True


def test_a_run_whose_slots_another_has_takes_later_ones(tmp_path):
    helpers, taken = home(document()), Taken()
    training = run(helpers, model(), folder=tmp_path)
    fresh = training.sums
    vars(training)["sums"] = taken
    body, _ = training.renewed()
    training.renewed = lambda: (body, fresh)
    train(training)
    assert taken.stopped
    assert kept(tmp_path) == body
    # Only once: then whoever asks is told.
    other = run(helpers, model())
    vars(other).update(sums=Taken(), renewed=lambda: (body, Taken()))
    with pytest.raises(SlotTaken, match="from slot 40 on"):
        train(other)


def test_a_folder_of_the_old_form_says_what_to_do(tmp_path):
    (tmp_path / "session.json").write_bytes(b'{"format": 1, "id": "00", "steps": 4}')
    with pytest.raises(OtherRun, match="of an older version, or a damaged one: begin a new run"):
        run(home(document()), model(), folder=tmp_path)


def test_a_run_that_is_over_is_not_run_again(tmp_path):
    net, again = model(), model(seed=3)
    fit(run(home(document()), net, folder=tmp_path), torch.optim.Adam(net.parameters()))
    training = run(home(document()), again, folder=tmp_path).keep(torch.optim.Adam(again.parameters()))
    assert list(training) == []
    assert np.array_equal(flat(net), flat(again))


def test_a_second_loop_says_that_the_run_is_over():
    net = model()
    training = fit(run(home(document()), net), torch.optim.Adam(net.parameters()))
    with pytest.raises(StepOver, match=r"taken 6 of its 6 steps.*nothing is charged.*new client\.training"):
        fit(training, torch.optim.Adam(net.parameters()))


def test_what_a_notebook_shows_is_short():
    training = run(home(document()), model())
    step = next(iter(training))
    step.backward()
    asked = evaluation_query(home(document()), Predictor(model(), "bce", TAG))
    assert repr(training) == "<Training of visits: 1 of 6 steps>"
    assert repr(step) == "<Step 0 of <Training of visits: 1 of 6 steps>>"
    assert repr(asked) == "<Evaluation of visits, part='all': plan() prices it, ask() asks it>"
    assert repr(asked.ask()).startswith("AUC")


def test_a_run_that_has_taken_no_step_is_evaluated_with_a_warning():
    x, _ = table()
    helpers = home(document())
    training = run(helpers, model(), sample=x)
    with pytest.warns(Untrained, match="no step of this run was taken"):
        evaluate(helpers, training)
    fit(training, torch.optim.SGD(training.model.parameters()))
    evaluate(helpers, training)


def test_a_folder_is_one_run(tmp_path):
    net = model()
    fit(run(home(document()), net, folder=tmp_path), AdaBound(net.parameters()))
    with pytest.raises(OtherRun, match=r"other settings or data \(steps\): give another folder"):
        run(home(document()), model(), folder=tmp_path, steps=7)
    with pytest.raises(OtherRun, match="kept now are Sequential, Adam: keep the same"):
        list(run(home(document()), model(), folder=tmp_path).keep(torch.optim.Adam(model().parameters())))


def test_below_k_a_step_is_noise_alone():
    net = model()
    hidden = home(document(k=10), records=20)
    training = run(hidden, net, sampling="chosen", steps=2)
    step, _ = training
    step.backward(chosen=[(0, 9)])
    deviation = training.plan().deviation * training.plan().batch / 9
    found = gradient(net)
    assert np.abs(found).max() < 6 * deviation
    assert np.abs(found).min() > 0


def test_chosen_batches_are_those_that_were_chosen():
    x, y = table()
    training = run(home(document()), model(), sampling="chosen", noise=0.01, steps=1)
    chosen = [(0, 50), (100, 200)]
    training.sums.open()
    found = training.gradient(0, chosen)
    rows = np.concatenate([np.arange(*each) for each in chosen])
    exact = exact_gradient(training.network, training.quantised(), x[rows], [y[rows]], training.clip)
    noise = training.plan().deviation * training.plan().batch / len(rows)
    assert np.abs(found - exact / len(rows)).max() < 6 * noise


@pytest.mark.parametrize("weight", [1e5, float("nan")])
def test_weights_that_do_not_fit_are_refused_before_anything_is_charged(weight):
    net = model()
    with torch.no_grad():
        next(net.parameters())[0, 0] = weight
    with pytest.raises(
        WeightsDoNotFit, match=r"rescale the model|0.weight reach .*; 8 bits hold 254: start from smaller"
    ):
        run(home(document()), net)


OTHER_PROCESS = (
    "import sys; from pathlib import Path; from maskedlark.training.checkpoint import Run; "
    "from maskedlark.training.errors import RunInUse\n"
    "try:\n with Run(Path(sys.argv[1]), sys.argv[2].encode()).begun(): pass\n"
    "except RunInUse as error: sys.exit(str(error))"
)


def test_another_process_is_kept_out_of_a_folder_until_the_loop_has_ended(tmp_path):
    training = run(home(document()), model(), folder=tmp_path)
    steps = iter(training)
    next(steps)
    stored = kept(tmp_path)
    assert stored is not None
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path), stored.decode()]
    in_use = f"another process or thread trains in {tmp_path}: wait until it is done, or give another folder"
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr.strip() == in_use
        # A second run of this process is refused too, and takes nothing of the first one's lock away.
        with pytest.raises(RunInUse, match="another process or thread trains in"):
            next(iter(run(home(document()), model(), folder=tmp_path)))
    del steps
    gc.collect()
    assert subprocess.run(command, check=False).returncode == 0
    assert [step.number for step in training] == [*range(6)]


def test_of_two_threads_with_one_folder_one_trains_and_is_charged(tmp_path):
    helpers = home(document())
    runs = [run(helpers, model(), folder=tmp_path) for _ in range(2)]
    ended, refused = threading.Event(), list[Exception]()

    def train_one(training):
        try:
            for step in training:
                step.backward()
                ended.wait(10)  # Until the other thread is refused.
        except (RunInUse, OtherRun) as error:
            refused.append(error)
            ended.set()

    threads = [threading.Thread(target=train_one, args=(each,)) for each in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in refused] == [RunInUse]
    assert sorted(each.taken for each in runs) == [0, 6]
    assert len(helpers.budget(document()).dearest.entries) == 1
