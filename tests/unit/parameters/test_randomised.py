"""Sums without noise: only where everything was randomised in the browser, and then unbiased exactly."""

import numpy as np
import pytest

from maskedlark.core import field, sharing
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.sampling import Sampling
from maskedlark.errors import FieldOverflow, NoiseTooSmall
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import BinaryCrossEntropy, SquaredError
from maskedlark.parameters import randomised
from tests.unit.release import stepping
from tests.unit.release.stepping import Rig, body, clipped, network, quantised

LOCAL = {
    "feature_noise": {"epsilon": 4.0, "sensitivity": 255.0},
    "randomised_response": {"epsilon": 1.5},
}
CLICKS = {
    "tag": "clicks",
    "columns": [{"kind": "bytes", "count": 4}],
    "labels": [{"kind": "binary"}],
    "gradient_bound": 1.0,
}
BOTH = {
    "tag": "clicks",
    "columns": [{"kind": "bytes", "count": 4}],
    "labels": [{"kind": "binary"}, {"kind": "integers", "value": "visit", "low": 0, "high": 4}],
    "gradient_bound": 1.0,
}
DECOYS = [{"tag": "clicks", "columns": "00" * 4}, {"keys": {"campaign": "a", "place": 1}}]
OPEN = {"fake_rate": 0.0, "decoys": []}


def local(*models, helpers=2, **changes):
    return stepping.document(helpers, **{"models": list(models or [CLICKS | LOCAL]), **OPEN, **changes})


@pytest.mark.parametrize(
    ("document", "match"),
    [
        (local(CLICKS), "not randomised"),
        (local(CLICKS | {"feature_noise": LOCAL["feature_noise"]}), "not randomised"),
        (local(CLICKS | {"randomised_response": {"epsilon": 1.0}}), "no noise of their own"),
        (
            local(
                fake_rate=0.1,
                decoys=[{"tag": "clicks", "columns": "00" * 4}, {"keys": {"campaign": "a", "place": 1}}],
            ),
            "fakes",
        ),
        (local(CLICKS | LOCAL | {"candidates": "pair"}), "do not show all labels"),
    ],
)
def test_everything_must_be_private_by_itself(tmp_path, document, match):
    with pytest.raises(NoiseTooSmall, match=match):
        randomised.check(document, "clicks")
    rig = Rig(tmp_path, document)
    with pytest.raises(NoiseTooSmall, match=match):
        rig.open(rig.request(noise=None, delta=0.0))
    rig.close()


def test_categories_have_no_noise_of_their_own():
    columns = [{"kind": "bytes", "count": 4}, {"kind": "category", "size": 9}]
    document = local(CLICKS | LOCAL | {"columns": columns})
    with pytest.raises(NoiseTooSmall, match="categories of clicks have no noise of their own"):
        randomised.check(document, "clicks")
    assert randomised.epsilon(document) == 0


def coefficients(sizes, epsilon=1.5):
    """1 / a and b / a of every mask, by the definition of randomised response."""
    kept, off = [], []
    for size in sizes:
        true, other = np.exp(epsilon) / (np.exp(epsilon) + size - 1), 1 / (np.exp(epsilon) + size - 1)
        kept += [1 / (true - other)] * size
        off += [other / (true - other)] * size
    return np.array(kept), np.array(off)


@pytest.mark.parametrize(("model", "sizes"), [(CLICKS, [2]), (BOTH, [2, 5])])
def test_masks_are_unbiased_to_a_unit(model, sizes):
    kept, off = coefficients(sizes)
    declared = local(model | LOCAL).trained("clicks")
    masks = np.eye(sum(sizes), dtype=np.int64)
    clear = TrainingRecords(
        np.zeros((len(masks), 16), np.uint8), np.zeros((len(masks), 4), np.uint8), (), masks
    )
    found = field.to_signed(randomised.unbiased(clear, declared, 1).shares) / randomised.UNIT
    assert np.abs(found - (masks * kept - off)).max() <= max(sizes) / randomised.UNIT
    # What all candidates share comes out as it is, exactly.
    ends = np.cumsum([0, *sizes])
    for place, size in zip(ends, sizes, strict=False):
        assert found[place, place : place + size].sum() == 1
    most = max(kept[place] + size * off[place] for place, size in zip([0, sizes[0]], sizes, strict=False))
    assert randomised.growth(declared) == pytest.approx(randomised.UNIT * most, rel=1e-4)


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("model", [CLICKS, BOTH])
def test_helpers_answer_with_the_unbiased_gradient_and_no_noise(tmp_path, helpers, model):
    losses = (BinaryCrossEntropy(), SquaredError())[: len(model["labels"])]
    made, document = network(losses=losses), local(model | LOCAL, helpers=helpers)
    rig = Rig(tmp_path, document, (60, 30))
    request = rig.request(made=made, noise=None, delta=0.0, sampling=Sampling(kind="whole"))
    rig.open(request)
    found = rig.sum_without_noise(request, 0, body(made))
    # The same coefficients on the masks in the clear, by the engine alone.
    truth = [randomised.unbiased(each["clicks"], document.trained("clicks"), 1) for each in rig.truth]
    clip = Clip(1.0, Norm.L2, 20, 0)
    sums = [clipped(made, quantised(made), each, range(len(each)), clip) for each in truth]
    assert found.tolist() == sharing.combine(sums).tolist()
    for sessions in rig.sessions:
        line = sessions.find(stepping.ORIGIN, bytes.fromhex(request.id))
        assert line.opened.session_charge is None
        assert line.opened.balance.charged_epsilon == 0
    rig.close()


def test_below_k_even_randomised_records_are_not_summed(tmp_path):
    rig = Rig(tmp_path, local())
    request = rig.request(noise=None, delta=0.0, sampling=Sampling(kind="chosen"))
    rig.open(request)
    assert not rig.sum_without_noise(request, 0, body(network()), [(0, stepping.K - 1)]).any()
    assert rig.sum_without_noise(request, 1, body(network()), [(0, stepping.K)]).any()
    rig.close()


def test_what_hardly_says_anything_could_leave_the_field(tmp_path):
    faint = CLICKS | LOCAL | {"randomised_response": {"epsilon": 1e-6}}
    rig = Rig(tmp_path, local(faint))
    request = rig.request(noise=None, delta=0.0, sampling=Sampling(kind="whole"))
    rig.open(request)
    with pytest.raises(FieldOverflow):
        rig.answers(request, 0, body(network()))
    assert rig.used(request) == [0, 0]
    rig.close()


def test_with_noise_nothing_is_unbiased(tmp_path):
    rig = Rig(tmp_path, local())
    request = rig.request(sampling=Sampling(kind="whole"))
    rig.open(request)
    truth = rig.truth[0]["clicks"]
    wanted = clipped(network(), quantised(network()), truth, range(60), Clip(1.0, Norm.L2, 20, 0))
    assert rig.sum_without_noise(request, 0, body(network())).tolist() == wanted.tolist()
    rig.close()
