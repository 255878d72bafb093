"""Evaluation rows: shares of the histogram add up to it, and buckets are what the scores say."""

import numpy as np
import pytest
from maskedlark.exact.evaluation import Scale, buckets, histogram

from maskedlark.core import field, sharing
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.exact import layout
from maskedlark.exact.errors import RecordsDoNotFit, TooWide
from maskedlark.exact.gradient import Records
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.quantise import quantise
from maskedlark.randomness import FixedRandomness
from tests.twins import exact as twin
from tests.unit.exact.cases import twin_network
from tests.unit.exact.models import dense, random_parameters

network = dense((5, 6, 5), BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
weights = quantise(network, random_parameters(network, 5), (7,))
scales = [Scale(10), Scale(3), Scale(7, -1, 2)]
features = np.random.default_rng(5).integers(0, 256, (60, 5)).astype(np.uint8)


def slow_buckets() -> list[tuple[int, int, int]]:
    net, found = twin_network(network, weights), []
    e = twin.forms(net)[-1]["e"]
    for row in features.tolist():
        sums = twin.forward(net, row, None, b"")[2]
        score = twin.sig_table(twin.clamp(twin.rounded(sums[0], e - 8), 4095))
        inside = max(0, min(3 << e, sums[4] + (1 << e)))
        likeliest = sums[1:4].index(max(sums[1:4]))
        found.append((min(9, score * 10 >> 20), likeliest, min(6, inside * 7 // (3 << e))))
    return found


def test_buckets_are_what_the_scores_say() -> None:
    found = buckets(network, weights, features, scales)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == slow_buckets()


def test_the_first_of_equal_classes_wins() -> None:
    zero = quantise(network, {e.name: np.zeros(e.shape) for e in network.parameters}, (7,))
    assert buckets(network, zero, features, scales)[1].tolist() == [0] * 60


def test_shares_add_up_to_the_histogram() -> None:
    spaces = (LabelSpace.binary(), LabelSpace.categorical(3), LabelSpace.integers(-1, 1))
    model, rng = Model("tag", (Bytes(5),), spaces), np.random.default_rng(6)
    labels = [rng.choice(np.array(space.values), 60) for space in spaces]
    real, secret = rng.random(60) < 0.9, FixedRandomness(b"evaluation")
    shown, masks = model.mask(labels, real, secret)
    ids = sharing.random_rows(60, 16, secret)
    shares = sharing.split(masks, ids, Purpose.TRAIN, 2, secret)
    both = [shares.explicit, sharing.expand(shares.seeds[0], ids, Purpose.TRAIN, 1, model.secrets())]
    found = buckets(network, weights, features, scales)
    for label, (space, scale) in enumerate(zip(spaces, scales, strict=True)):
        parts = [histogram(found[label], Records(features, shown, own), label, scale, space) for own in both]
        table = field.to_signed(sharing.combine(parts)).reshape(scale.buckets, len(space))
        wanted = np.zeros_like(table)
        np.add.at(wanted, (found[label][real], np.searchsorted(space.values, labels[label])[real]), 1)
        assert table.tolist() == wanted.tolist()


def test_scales_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecordsDoNotFit, match="labels"):
        buckets(network, weights, features, scales[:2])
    with pytest.raises(RecordsDoNotFit, match="buckets"):
        Scale(0)
    with pytest.raises(TooWide, match="units"):
        buckets(network, weights, features, [Scale(10), Scale(3), Scale(4096, 0, 1 << 31)])


def test_softmax_has_a_bucket_a_class() -> None:
    with pytest.raises(RecordsDoNotFit, match="3, not 2"):
        buckets(network, weights, features, [Scale(10), Scale(2), Scale(7, -1, 2)])


@pytest.mark.parametrize("bad", [features[:, :4], features.astype(np.int64), features[0]])
def test_features_of_another_form_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(RecordsDoNotFit, match="features"):
        buckets(network, weights, bad, scales)


def test_a_network_too_wide_to_train_may_still_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TooWide("errors")

    monkeypatch.setattr(layout, "_errors", refuse)
    assert len(buckets(network, weights, features, scales)) == 3
