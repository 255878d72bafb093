"""A device reaches every step: columns stay on it from step to step, and answers are those of the processor.

`cpu:0` is this processor by a name that counts as a device of its own.
"""

import gc
from functools import partial

import pytest

from maskedlark import workflow
from maskedlark.core import sharing
from maskedlark.dp.sampling import Sampling
from maskedlark.exact import resident
from maskedlark.exact.clip import Clip, Norm
from maskedlark.parameters import randomised
from maskedlark.release import shards
from maskedlark.release.release import Release
from tests.unit.release import stepping
from tests.unit.release.stepping import Rig, body, clipped, network, quantised

DEVICE = "cpu:0"
STEPS = 3
RANDOMISED = {
    "tag": "clicks",
    "columns": [{"kind": "bytes", "count": 4}],
    "labels": [{"kind": "binary"}],
    "gradient_bound": 1.0,
    "feature_noise": {"epsilon": 4.0, "sensitivity": 255.0},
    "randomised_response": {"epsilon": 1.5},
}


@pytest.fixture(autouse=True)
def on_a_device(monkeypatch):
    monkeypatch.setattr(workflow, "Release", partial(Release, device=DEVICE))
    resident.forget()


def copied(monkeypatch) -> list[int]:
    """How many records every copy to the device has, from now on."""
    sizes: list[int] = []
    of = resident.Columns.of.__func__  # type: ignore[attr-defined]

    def counting(cls, records, *others):
        sizes.append(len(records))
        return of(cls, records, *others)

    monkeypatch.setattr(resident.Columns, "of", classmethod(counting))
    return sizes


@pytest.mark.parametrize("dropout", [0, 64])
def test_steps_have_the_bits_of_the_processor_and_copy_columns_once(tmp_path, monkeypatch, dropout):
    made, found = network(dropout=dropout), []
    sizes = copied(monkeypatch)
    for name in (DEVICE, "cpu"):
        monkeypatch.setattr(workflow, "Release", partial(Release, device=name))
        rig = Rig(tmp_path / name, stepping.document(), (60, 45))
        session = rig.request(made=made, steps=STEPS)
        rig.open(session)
        found.append([rig.sum_without_noise(session, step, body(made)).tolist() for step in range(STEPS)])
        rig.close()
        assert sorted(sizes) == [45, 45, 60, 60], "both datasets, at both helpers, and never again"
    assert found[0] == found[1]


def test_sessions_without_noise_copy_columns_once_too(tmp_path, monkeypatch):
    document = stepping.document(models=[RANDOMISED], fake_rate=0.0, decoys=[])
    made, sizes = network(), copied(monkeypatch)
    rig = Rig(tmp_path, document, (60, 30))
    request = rig.request(noise=None, delta=0.0, sampling=Sampling(kind="whole"))
    rig.open(request)
    truth = [randomised.unbiased(each["clicks"], document.trained("clicks"), 1) for each in rig.truth]
    clip = Clip(1.0, Norm.L2, 20, 0)
    sums = [clipped(made, quantised(made), each, range(len(each)), clip) for each in truth]
    for step in range(STEPS):
        found = rig.sum_without_noise(request, step, body(made))
        assert found.tolist() == sharing.combine(sums).tolist()
    assert sorted(sizes) == [30, 30, 60, 60]
    rig.close()
    del rig
    gc.collect()
    assert not shards._UNBIASED, "it stays no longer than the shard"
