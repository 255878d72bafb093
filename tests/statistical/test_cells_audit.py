"""Claim 12 for cells: canary labels bound the ε of one release from below, however labels are counted.

The partition is the worst that an ad server can send: each canary has a cell of its own. A label is a release
by itself, so n canaries with l labels are n · l trials. Bounds are at 99.99 %, and all seeds are fixed.
"""

import numpy as np
import pytest
from sqlalchemy import text

from maskedlark.audit import canaries
from maskedlark.cli.audits.findings import CONFIDENCE
from maskedlark.clock import FixedClock
from maskedlark.dp import accountant, mechanisms
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells, CellsArguments, DescribedBuckets, DescribedTable
from maskedlark.randomness import FixedRandomness
from maskedlark.release import release
from maskedlark.workflow import Workflow

CANARIES, LABELS, DELTA, TAG = 1000, 20, 1e-5, "audited"
CLOCK = FixedClock(1_800_000_000)
BINARY, CLASSES = '{kind = "binary"}', '{kind = "categorical", value = "worth", classes = 3}'
SETTINGS = """
k = 1
values.worth = [0, 2]
budget = {{epsilon = 100.0, delta = {both}}}
training.adserver = {{epsilon = 100.0, delta = {delta}}}
training.coalition = {{epsilon = 100.0, delta = {delta}}}
mechanisms.cells = {{kind = "{kind}", noise_floor = 0.01}}
mechanisms.sums = {{kind = "{kind}", noise_floor = 1.0}}
models.audited = {{columns = [{{kind = "bytes", count = 2}}], labels = [{labels}]}}
"""
NETWORK = Network((Layer(Linear("w0", None, 2, 1)),), ())
SENT = weights.to_text(Quantised(np.array([256, 1], np.int16), (8,), (), 16))
"""The two bytes of a canary are its number, over 2^16."""
ALONE = DescribedBuckets(edges=tuple(each / 2**16 for each in range(1, CANARIES)))
PART = {"part": "training", "held_out": 1e-12}
"""Everybody, as a part that the ad server does not know."""


class Audited:
    """Canaries at two helpers in memory. A canary has the first or the last of its labels."""

    def __init__(self, declared, kind, ones, part, epsilon):
        self.kind, self.ones, self.part, self.charged = kind, ones, part, []
        self.first, self.last = (0, 1) if declared == BINARY else (1, 2)
        rng, delta = FixedRandomness(b"canaries"), 0.0 if kind == "laplace" else DELTA
        declarations = ", ".join([declared] * LABELS)
        settings = SETTINGS.format(kind=kind, delta=delta, both=2 * delta, labels=declarations)
        self.coins = rng.below(2, LABELS * CANARIES).reshape(LABELS, CANARIES) == 1
        self.way = Workflow.declared(settings, 2, CLOCK, rng)
        self.noise = accountant.noise_for(kind, 1, epsilon, delta)
        numbers = np.arange(CANARIES)
        rows = np.stack([numbers >> 8, numbers & 255], axis=1).astype(np.uint8)
        labels = np.where(self.coins, self.last, self.first)
        self.way.make_training_dataset(TAG, TAG, rows, list(labels), decoded=True)

    def bounds(self):
        """On ε, of the ad server by itself and with helper 1's noise."""
        seen = [self.view(label) for label in range(LABELS)]
        return [self.bound(np.concatenate(scores)) for scores in zip(*seen, strict=True)]

    def view(self, label):
        asked = CellsArguments(
            tag=TAG,
            model=model.describe(NETWORK),
            weights=SENT,
            tables=(DescribedTable(label=label, cells=ALONE, ones=self.ones),),
            **self.part,
        )
        answered = self.way.ask(Cells(), asked.model_dump(mode="json"), noise=self.noise)
        (table,), released = answered.tables, answered.receipts["helper-1"]
        self.charged.append(released.balance.charged_epsilon)
        counts = asked.tables[0].dense(table.rows, table.columns[0])
        told = self.noise_of_helper_1(released, table.schema.columns[0].sensitivity, counts.size)
        return self.score(counts), self.score(counts - told.reshape(counts.shape))

    def score(self, counts):
        """What tells the labels apart: where they differ by 1, a count over 0 speaks for it."""
        if self.kind == "gaussian":
            return counts[:, self.last] - counts[:, self.first]
        over = np.clip(counts, 0, 1)
        return over[:, 0] if self.ones else over[:, self.last] - over[:, self.first]

    def bound(self, scores):
        coins = self.coins.ravel()
        if self.kind == "laplace":
            return canaries.lower_bound(coins, scores, CONFIDENCE)
        once = np.ones(len(coins), np.int64)
        return canaries.bound_with_batches(coins, scores, once, 1, self.noise, DELTA, CONFIDENCE).epsilon

    def noise_of_helper_1(self, released, sensitivity, size):
        """From what it has in its ledger."""
        with self.way.helpers[1].database.read() as connection:
            query = text("SELECT seed FROM ledger_lines WHERE number = :number")
            stored = bytes(connection.execute(query, {"number": released.number}).scalar_one())
        seed = mechanisms.root(stored, [self.way.seeds[bytes.fromhex(each)] for each in released.datasets])
        own = release.column_seed(seed, 0, 0)
        return mechanisms.draw(released.charge.mechanism, released.charge.noise, sensitivity, own, size)


@pytest.mark.parametrize(
    ("declared", "kind", "ones", "part", "epsilon"),
    [
        (BINARY, "laplace", True, {}, 1.0),
        (BINARY, "laplace", False, {}, 1.0),
        (CLASSES, "gaussian", False, PART, 1.0),
        pytest.param(CLASSES, "laplace", False, PART, 1.0, marks=pytest.mark.long),
        pytest.param(CLASSES, "gaussian", False, {}, 1.0, marks=pytest.mark.long),
        pytest.param(BINARY, "laplace", True, {}, 2.0, marks=pytest.mark.long),
        pytest.param(BINARY, "laplace", False, {}, 2.0, marks=pytest.mark.long),
        pytest.param(CLASSES, "gaussian", False, PART, 2.0, marks=pytest.mark.long),
    ],
)
def test_a_release_is_under_its_charge_and_over_half_of_it(declared, kind, ones, part, epsilon, monkeypatch):
    audited = Audited(declared, kind, ones, part, epsilon)
    alone, together = audited.bounds()
    print(alone, together)
    # The first; Gaussian ones after it cost less together.
    assert audited.charged[0] == pytest.approx(epsilon, rel=1e-3)
    assert alone < together
    assert epsilon / 2 < together < epsilon
    draw = mechanisms.draw
    monkeypatch.setattr(mechanisms, "draw", lambda kind, noise, *rest: draw(kind, noise / 2, *rest))
    halved = audited.bounds()
    print("halved", halved)
    assert halved[1] > epsilon
    audited.way.close()
