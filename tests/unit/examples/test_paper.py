"""`examples/paper.py` against `core/`, which computes the same faster."""

import math
import runpy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import paper
from maskedlark.core import field, sharing
from maskedlark.core.lemma import masked_sum
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.randomness import SystemRandomness

SECRETS = [0, 1, -1, 123, -(1 << 40), field.HALF, -field.HALF]
ROWS = np.random.default_rng(7).integers(0, 256, (150, 3)).astype(np.uint8)
LABELS = np.random.default_rng(8).integers(0, 2, 150)
WEIGHTS = np.array([0.5, -1.0, 2.0])
FALSE_ALARMS = 1e-10
"""The probability of each statistical assertion to fail although all is well."""


@pytest.fixture
def silent(monkeypatch):
    """Noise rounds to 0, but for a probability below 2^-1000."""
    monkeypatch.setattr(paper, "EPSILON", 1e30)


def masks():
    """What each helper gets for `LABELS`."""
    both = np.array([paper.mask(int(label)) for label in LABELS], dtype=object)
    return both[:, :, 0], both[:, :, 1]


def test_it_is_at_most_eighty_lines():
    assert len(Path(paper.__file__).read_text().splitlines()) <= 80


def test_its_field_is_cores():
    assert field.P == paper.P


@pytest.mark.parametrize("secret", SECRETS)
def test_core_opens_its_shares(secret):
    shares = [np.array([share], np.int64) for share in paper.share(secret)]
    assert field.to_signed(sharing.combine(shares)).tolist() == [secret]


def test_it_opens_cores_shares():
    secrets, rng = field.from_signed(np.array([SECRETS])), SystemRandomness()
    ids = sharing.random_rows(1, sharing.ID_BYTES, rng)
    shares = sharing.split(secrets, ids, Purpose.AGGREGATE, 2, rng)
    second = sharing.expand(shares.seeds[0], ids, Purpose.AGGREGATE, 1, len(SECRETS))
    assert paper.combine(shares.explicit[0], second[0]).tolist() == SECRETS


def test_over_all_draws_each_share_takes_every_value_once_whatever_the_secret(monkeypatch):
    """The proof that one helper learns nothing, in a field so small that every draw can be tried."""
    monkeypatch.setattr(paper, "P", 7)
    for secret in range(7):
        draws = iter(range(7))
        monkeypatch.setattr("secrets.randbelow", lambda bound, draws=draws: next(draws) % bound)
        drawn = [paper.share(secret) for _ in range(7)]
        for helper in (0, 1):
            assert Counter(shares[helper] for shares in drawn) == Counter(range(7))


@pytest.mark.parametrize("secret", [0, 1, field.HALF])
@pytest.mark.parametrize("helper", [0, 1])
@pytest.mark.parametrize("bits", [20, 61])
def test_the_shares_of_one_helper_are_uniform(secret, helper, bits):
    """In their low bits, and in all. Dvoretzky-Kiefer-Wolfowitz: P(distance > d) <= 2 exp(-2 n d²)."""
    records, above = 5000, 1 << bits
    found = np.sort([paper.share(secret)[helper] % above / above for _ in range(records)])
    steps = np.arange(records + 1) / records
    distance = max(np.abs(found - steps[1:]).max(), np.abs(found - steps[:-1]).max())
    assert distance < math.sqrt(math.log(2 / FALSE_ALARMS) / (2 * records))


@pytest.mark.parametrize("label", [0, 1])
def test_a_mask_is_1_for_the_own_label_and_0_for_the_other(label):
    assert [int(paper.combine(*shares)) for shares in np.array(paper.mask(label), dtype=object)] == [
        1 - label,
        label,
    ]


@pytest.mark.usefixtures("silent")
def test_the_helpers_sums_add_up_to_the_sum_of_the_secrets():
    secrets = [1, 0, 5, -3] * 50
    shares = np.array([paper.share(secret) for secret in secrets], dtype=object)
    answers = [paper.private_sum(shares[:, helper]) for helper in (0, 1)]
    assert paper.combine(*answers).tolist() == [sum(secrets)]


def test_its_masked_sum_is_that_of_core():
    sums = []
    for own in masks():
        ids, shown = np.zeros((len(ROWS), sharing.ID_BYTES), np.uint8), np.array([[0, 1]])
        records = TrainingRecords(ids, ROWS, (shown,), own.astype(np.int64))
        found = paper.masked_sum(lambda x, y: (3 * y - 1) * x.astype(object), ROWS, own)
        cores = masked_sum(lambda x, y: (3 * y - 1)[:, None] * x.astype(np.int64), records)
        assert found.tolist() == cores.tolist()
        sums.append(found)
    truth = ((3 * LABELS - 1)[:, None] * ROWS.astype(np.int64)).sum(axis=0)
    assert paper.combine(*sums).tolist() == truth.tolist()


@pytest.mark.usefixtures("silent")
def test_the_masked_gradient_is_that_of_torch_with_every_row_clipped():
    x = ROWS / 256
    found = paper.combine(*(paper.private_gradient(WEIGHTS, x, own) for own in masks()))
    truth, clipped = np.zeros(3), 0
    for row, label in zip(torch.tensor(x), torch.tensor(LABELS.astype(float)), strict=True):
        weights = torch.tensor(WEIGHTS, requires_grad=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(weights @ row, label)
        (own,) = torch.autograd.grad(loss, weights)
        clipped += int(own.abs().sum() > paper.BOUND)
        truth += own.numpy() * min(1.0, paper.BOUND / float(own.abs().sum()))
    assert 0 < clipped < len(ROWS)
    # Each row's numbers are cut to whole units.
    assert np.abs(found.astype(float) / paper.STEPS - truth).max() <= len(ROWS) / paper.STEPS


def test_no_gradient_is_longer_than_the_bound_that_noise_is_for():
    lengths = [abs(paper.gradient(WEIGHTS, x / 7, label)).sum() for x in ROWS for label in (0, 1)]
    assert max(lengths) <= paper.BOUND * paper.STEPS


def test_fewer_than_k_people_are_refused():
    few = paper.K - 1
    with pytest.raises(ValueError, match=f"{few} people are fewer than K = {paper.K}"):
        paper.private_sum(np.zeros(few, dtype=object))
    with pytest.raises(ValueError, match=f"{few} people are fewer than K = {paper.K}"):
        paper.private_gradient(WEIGHTS, ROWS[:few], masks()[0][:few])
    assert paper.private_sum(np.zeros(paper.K, dtype=object))[0] in range(paper.P)


@pytest.mark.parametrize("sensitivity", [1000, 2 * paper.BOUND * paper.STEPS])
def test_noise_is_laplace(sensitivity):
    """Dvoretzky-Kiefer-Wolfowitz, as above; rounding moves the law by less than 1 / 2000."""
    drawn = paper.release(np.zeros(5000, dtype=object), paper.K, sensitivity)
    x = np.sort(paper.combine(drawn, np.array(0)).astype(float)) * paper.EPSILON / sensitivity
    law = np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2)
    distance = np.abs(law - (np.arange(5000) + 0.5) / 5000).max() - 1 / 2000 - 1 / 10_000
    assert distance < math.sqrt(math.log(2 / FALSE_ALARMS) / 10_000)


def test_each_helper_adds_noise_for_what_one_person_can_change(monkeypatch):
    """Each the whole: one helper may tell the ad server its own."""
    asked = []
    monkeypatch.setattr(paper, "release", lambda _, people, sensitivity: asked.append((people, sensitivity)))
    paper.private_sum(np.zeros(150, dtype=object))
    paper.private_gradient(WEIGHTS, ROWS, masks()[0])
    assert asked == [(150, 1), (150, 2 * paper.BOUND * paper.STEPS)]


def test_it_prints_what_helpers_see_and_the_truth_beside_the_answers(capsys):
    runpy.run_path(paper.__file__, run_name="__main__")
    printed = capsys.readouterr().out
    for words in ("Helper 0 gets", "private sum", "true sum", "Private gradient", "In the clear"):
        assert words in printed
