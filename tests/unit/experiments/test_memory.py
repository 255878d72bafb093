"""Training in memory: what all helpers' shares add up to, batches and noise as helpers make them."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from experiments import memory, over_http
from experiments.data import Split
from experiments.memory import Laplace, Local, Run, Seeds
from maskedlark.clock import FixedClock
from maskedlark.core import field, local_dp, sharing
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import Records, gradient
from maskedlark.exact.quantise import calibrate, quantise
from maskedlark.functions.gradient import GradientQuery
from maskedlark.ledger import session_rows
from maskedlark.randomness import FixedRandomness
from maskedlark.training import network as networks
from maskedlark.training.begin import begin
from maskedlark.workflow import Workflow
from tests.unit.parameters.cases import HELPER_KEYS
from tests.unit.training import cases

D = 5


def table(classes=2, rows=60):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (rows, D), dtype=np.uint8)
    y = (x.astype(int).sum(axis=1) * classes // (255 * D + 1)).astype(np.int64)
    return Split(x, y, x, y)


def run(classes=2, **changes):
    sizes = (D, 6, 1) if classes == 2 else (D, 6, classes)
    return Run(sizes, Clip(1.0), batch=20, steps=3, rate=0.5, seed=7, **changes)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("helpers", [2, 3])
def test_the_gradient_of_the_truth_is_what_all_helpers_shares_add_up_to(classes, helpers):
    data, own = table(classes), run(classes)
    model = own.model()
    network = networks.network(model, networks.losses(own.loss, model), D)
    parameters = networks.parameters(network, model)
    weights = quantise(network, parameters, calibrate(network, parameters, data.features))
    space, secret = LabelSpace.categorical(classes), FixedRandomness(b"masks")
    shown, masks = Model("m", (Bytes(D),), (space,)).mask(
        [data.labels], np.ones(len(data.labels), bool), secret
    )
    ids = sharing.random_rows(len(masks), sharing.ID_BYTES, secret)
    shares = sharing.split(masks, ids, Purpose.TRAIN, helpers, secret)
    others = [
        sharing.expand(seeds, ids, Purpose.TRAIN, place, masks.shape[1])
        for place, seeds in enumerate(shares.seeds, 1)
    ]
    seen = np.broadcast_to(shown[0], masks.shape)
    answers = [
        gradient(network, weights, Records(data.features, [seen], each), own.clip)
        for each in (shares.explicit, *others)
    ]
    step = GradientQuery("m", network, weights, own.clip).step
    truth = memory.share(step, data.features, data.labels)
    assert np.array_equal(field.from_signed(truth), sharing.combine(answers))
    # No helper's share alone says anything of it.
    assert not any(np.array_equal(field.from_signed(truth), each) for each in answers)


def test_randomised_labels_are_unbiased():
    data, own = table(4), run(4)
    model = own.model()
    network = networks.network(model, networks.losses(own.loss, model), D)
    parameters = networks.parameters(network, model)
    weights = quantise(network, parameters, calibrate(network, parameters, data.features))
    step = GradientQuery("m", network, weights, Clip(1.0, fraction=8)).step
    plain = memory.share(step, data.features, data.labels)
    certain = memory.share(step, data.features, data.labels, Local(1.0, 50.0))
    assert np.array_equal(certain, plain << 16)
    space, response = LabelSpace.categorical(4), local_dp.RandomisedResponse(2.0)
    drawn = [
        memory.share(step, data.features, local_dp.labels(data.labels, space, response, rng), Local(1.0, 2.0))
        / 2**16
        for rng in (FixedRandomness(bytes([n])) for n in range(200))
    ]
    # 200 means of unit-free numbers: within 5 of their own deviations of the truth, each.
    error = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(np.mean(drawn, axis=0) - plain) <= 5 * error + 1)


def test_the_same_seed_makes_the_same_run_and_another_does_not():
    data = table()
    own = run(noise=0.5)
    found = [memory.flat(memory.train(data, each)) for each in (own, own, replace(own, seed=8))]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_helpers_seeds_make_helpers_noise():
    data, own = table(), run(noise=0.5)
    seeds = Seeds(bytes(32), [b"a" * 32, b"b" * 32])
    with_noise = memory.flat(memory.train(data, own, seeds))
    assert np.array_equal(with_noise, memory.flat(memory.train(data, own, seeds)))
    other = seeds._replace(noise=[b"a" * 32, b"c" * 32])
    assert not np.array_equal(with_noise, memory.flat(memory.train(data, own, other)))
    without = memory.flat(memory.train(data, replace(own, noise=None), seeds))
    assert not np.array_equal(with_noise, without)


@pytest.mark.parametrize("shuffled", [False, True], ids=["poisson", "partition"])
@pytest.mark.parametrize("classes", [2, 3], ids=["bce", "softmax"])
def test_with_helpers_seeds_it_has_the_weights_of_their_session(classes, shuffled):
    """Masked, shared out to two helpers, with noise of each; the engine's own way, and a document's."""
    labels = (
        {"kind": "binary"} if classes == 2 else {"kind": "categorical", "value": "purchase", "classes": 3}
    )
    declared = {
        "tag": memory.TAG,
        "columns": [{"kind": "bytes", "count": D}],
        "labels": [labels],
        "gradient_bound": 1.0,
    }
    document, rng = cases.document(models=[declared]), FixedRandomness(b"reports")
    way = Workflow(document, HELPER_KEYS[:2], FixedClock(1_900_000_000), rng)
    data = table(classes, rows=300)
    own = replace(run(classes, noise=0.3, shuffled=shuffled), batch=100, steps=5)
    digest = way.make_training_dataset("table", memory.TAG, data.features, [data.labels], decoded=True)
    drawn = {"batches": 3} if shuffled else {"sampling_rate": 1 / 3}
    trained = begin(
        way, own.model(), loss=own.loss, tag=memory.TAG, steps=own.steps, noise=own.noise, delta=1e-5,
        sample=memory.sample(data, own), **drawn,
    )  # fmt: skip
    cases.fit(trained, torch.optim.SGD(trained.model.parameters(), lr=own.rate))
    noise, session = [], trained.sums.request.id
    for helper in way.helpers:
        with helper.database.read() as connection:
            stored = session_rows.find(connection, document.origin, bytes.fromhex(session)).seed
        assert stored is not None
        noise.append(mechanisms.root(stored, [way.seeds[digest]]))
    records: list[Any] = [each.datasets[digest].held[memory.TAG] for each in way.helpers]
    held = over_http.as_held(data, records)
    found = memory.train(held, own, Seeds(way.seeds[digest], noise), memory.sample(data, own))
    way.close()
    assert np.array_equal(memory.flat(found).view(np.uint32), memory.flat(trained.model).view(np.uint32))
    assert not np.array_equal(memory.flat(found), memory.flat(own.model()))


def test_activations_get_their_scale_from_rows_to_train_with():
    data, own = table(), run()
    other = data._replace(test_features=255 - data.test_features)
    assert np.array_equal(memory.sample(data, own), data.features[: memory.SAMPLE])
    assert np.array_equal(memory.flat(memory.train(data, own)), memory.flat(memory.train(other, own)))


def test_both_ways_to_draw_noise_have_one_deviation():
    own = run(noise=0.5)
    model = own.model()
    network = networks.network(model, networks.losses(own.loss, model), D)
    parameters = networks.parameters(network, model)
    weights = quantise(network, parameters, calibrate(network, parameters, table().features))
    asked = GradientQuery("m", network, weights, own.clip)
    nothing, rng = np.zeros(network.size, np.int64), np.random.default_rng(0)
    apart, at_once = [], []
    for n in range(200):
        seeds = Seeds(bytes(32), [hashlib.sha256(bytes([n, h])).digest() for h in range(2)])
        exact = memory.with_helpers_noise(nothing, asked, own, seeds, n)
        apart.append(exact * 2.0**-asked.step.exponent)
        at_once.append(memory.drawn_gaussian(asked, own, rng))
    # 0.5 times 2ψ of each of two helpers; over 8,000 draws a deviation is off by 5 % once in 10^9 times.
    for found in (apart, at_once):
        assert np.std(found) == pytest.approx(np.sqrt(2) * 0.5 * 2, rel=0.05)


@pytest.mark.parametrize(("helpers", "records"), [(1, 1), (2, 1), (2, 50)])
def test_laplace_noise_of_helpers_and_records_adds_up(helpers, records):
    law = Laplace(3.0, helpers, records)
    found = memory.drawn(law, 20_000, np.random.default_rng(2))
    assert np.std(found) == pytest.approx(3 * np.sqrt(2 * helpers * records), rel=0.05)
    assert abs(np.mean(found)) < 0.05 * np.std(found)
    # The law, not its width alone: of one variable half lies within log 2 of the scale.
    if helpers * records == 1:
        assert np.mean(np.abs(found) < 3 * np.log(2)) == pytest.approx(0.5, abs=0.02)


def test_it_learns_and_noise_hides():
    data = table(rows=400)
    own = replace(run(shuffled=True), steps=200, batch=50, rate=2.0)
    assert memory.accuracy(memory.train(data, own), data) > 90
    assert memory.accuracy(memory.train(data, replace(own, laplace=Laplace(1e4))), data) < 90


def test_a_shuffled_epoch_has_every_record_once():
    own = replace(run(shuffled=True), steps=6, batch=20)
    rows = list(memory._batches(own, own.seeds(), 60))
    for epoch in (rows[:3], rows[3:]):
        assert sorted(np.concatenate(epoch)) == list(range(60))
    assert not np.array_equal(rows[0], rows[3])
