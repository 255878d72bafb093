"""Steps: exact sums with every helper's noise, one body a step, and nothing taken by what is refused."""

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import batches, field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp import sampling
from maskedlark.dp.sampling import Sampling
from maskedlark.errors import (
    BadArguments,
    Expired,
    FieldOverflow,
    MaskedLarkError,
    NoiseTooSmall,
    ReleaseRefused,
    WrongLength,
)
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import SquaredError
from maskedlark.functions import model
from maskedlark.functions.gradient import Gradient, GradientQuery, GradientSteps
from maskedlark.ledger.errors import (
    BudgetExhausted,
    CannotRepeat,
    NoSuchSession,
    NoSuchStep,
    SessionClosed,
    StepOver,
    StepTaken,
)
from maskedlark.ledger.receipt_verification import verify
from maskedlark.parameters.document import NoMechanism
from maskedlark.release import release
from maskedlark.release.errors import (
    MixedDatasets,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.release.messages import Request
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import problem
from tests.unit.parameters import cases
from tests.unit.release import stepping
from tests.unit.release.stepping import ORIGIN, Rig, body, clipped, network, quantised

CLIP = Clip(1.0, Norm.L2, 20, 0)
SENT = body(network())
OTHER_WEIGHTS = body(network(), b"others")


@pytest.fixture
def rig(tmp_path):
    found = Rig(tmp_path, stepping.document())
    yield found
    found.close()


@pytest.fixture(params=[2, 3])
def several(request, tmp_path):
    """Two datasets at two or three helpers."""
    found = Rig(tmp_path, stepping.document(request.param), (60, 45))
    yield found
    found.close()


def expected(rig, rows, tag="clicks", made=None, clip=CLIP, seed=None, sent=None):
    """The exact sum over these rows of every dataset."""
    made = made or network()
    parts = [
        clipped(made, sent or quantised(made), truth[tag], each, clip, seed)
        for truth, each in zip(rig.truth, rows, strict=True)
    ]
    return reduce(field.add, parts)


def drawn(rig, step, rate=0.6, tag="clicks", first=0):
    return [
        batches.poisson(rig.seeds[digest], tag, first + step, rate, len(truth[tag])).batch
        for digest, truth in zip(rig.digests, rig.truth, strict=True)
    ]


def same(one, other):
    assert field.to_signed(one).tolist() == field.to_signed(other).tolist()


def test_shares_add_up_to_the_exact_clipped_gradient_and_all_noise(several):
    request = several.request()
    several.open(request)
    for step in range(3):
        same(several.sum_without_noise(request, step, SENT), expected(several, drawn(several, step)))


def test_every_helper_adds_noise_of_its_own(several):
    request = several.request()
    several.open(request)
    several.answers(request, 0, SENT)
    drawn_noise = [several.noise(place, request, 0, SENT, (), 8).tobytes() for place in several.places]
    assert len(set(drawn_noise)) == len(drawn_noise)


def test_the_answer_alone_is_noise_to_who_lacks_a_share(rig):
    request = rig.request()
    rig.open(request)
    one, other = rig.answers(request, 0, SENT)
    assert not np.array_equal(one, other)
    assert all(0 <= int(each.min()) <= int(each.max()) < field.P for each in (one, other))


def test_whole_takes_everybody(several):
    request = several.request(sampling=Sampling(kind="whole"), steps=2)
    several.open(request)
    rows = [range(len(truth["clicks"])) for truth in several.truth]
    for step in range(2):
        same(several.sum_without_noise(request, step, SENT), expected(several, rows))


def test_a_partition_takes_everybody_once_an_epoch(several):
    request = several.request(sampling=Sampling(kind="partition", batches=3), steps=8)
    several.open(request)
    everybody = expected(several, [range(len(truth["clicks"])) for truth in several.truth])
    sums = [several.sum_without_noise(request, step, SENT) for step in range(8)]
    for epoch in range(2):
        same(reduce(field.add, sums[3 * epoch : 3 * epoch + 3]), everybody)
    assert len({each.tobytes() for each in sums}) == 8
    rows = [
        np.flatnonzero(batches.partition(several.seeds[digest], "clicks", 6, 3, len(truth["clicks"])) == 1)
        for digest, truth in zip(several.digests, several.truth, strict=True)
    ]
    same(sums[7], expected(several, rows))


def test_chosen_records_are_numbered_over_all_datasets(several):
    request = several.request(sampling=Sampling(kind="chosen"), steps=3)
    several.open(request)
    found = several.sum_without_noise(request, 0, SENT, [(3, 10), (50, 70), (100, 105)])
    same(found, expected(several, [[*range(3, 10), *range(50, 60)], [*range(10), *range(40, 45)]]))
    # Exactly k of them are enough; one fewer is noise alone.
    same(several.sum_without_noise(request, 1, SENT, [(0, 20)]), expected(several, [range(20), []]))
    assert not several.sum_without_noise(request, 2, SENT, [(0, 19)]).any()


@pytest.mark.parametrize("ranges", [[(0, 106)], [(-1, 5)], [(5, 5)], [(105, 110)], []])
def test_other_choices_are_refused_and_take_no_step(several, ranges):
    request = several.request(sampling=Sampling(kind="chosen"))
    several.open(request)
    with pytest.raises(BadArguments):
        several.answers(request, 0, SENT, ranges)
    assert set(several.used(request)) == {0}


def test_only_sessions_that_choose_name_records(rig):
    request = rig.request()
    rig.open(request)
    with pytest.raises(BadArguments, match="by no others"):
        rig.answers(request, 0, SENT, [(0, 40)])
    assert rig.used(request) == [0, 0]


def test_another_choice_is_another_body(rig):
    request = rig.request(sampling=Sampling(kind="chosen"))
    rig.open(request)
    rig.answers(request, 0, SENT, [(0, 40)])
    with pytest.raises(StepTaken):
        rig.answers(request, 0, SENT, [(0, 41)])


def test_who_is_held_out_is_in_no_batch(several):
    kinds = [
        Sampling(kind="whole", held_out=0.3),
        Sampling(kind="poisson", rate=0.6, held_out=0.3),
        Sampling(kind="partition", batches=1, held_out=0.3),
        Sampling(kind="chosen", held_out=0.3),
    ]
    for number, kind in enumerate(kinds):
        request = several.request(number + 1, sampling=kind)
        several.open(request)
        chosen = [(0, 105)] if kind.kind == "chosen" else ()
        rows = []
        for digest, truth in zip(several.digests, several.truth, strict=True):
            seed, size = several.seeds[digest], len(truth["clicks"])
            out = batches.held_out(seed, "clicks", 0.3, size)
            assert 0 < out.sum() < size
            own = batches.poisson(seed, "clicks", 1000 * number, 0.6, size).batch
            rows.append([row for row in (own if kind.rate else range(size)) if not out[row]])
        same(several.sum_without_noise(request, 0, SENT, chosen), expected(several, rows))


def test_a_batch_below_k_is_noise_alone_after_the_same_work(tmp_path):
    worked = []

    class Counting(GradientQuery):
        def over(self, records, device="cpu"):
            worked.append(len(records))
            return super().over(records, device)

    class CountingSteps(GradientSteps):
        def at(self, body, shared):
            found = super().at(body, shared)
            assert isinstance(found, GradientQuery)
            return Counting(found.tag, found.network, found.weights, found.clipping)

    class CountingGradient(Gradient):
        def begin(self, document, tag, arguments):
            return CountingSteps(**vars(super().begin(document, tag, arguments)))

    rig = Rig(tmp_path, stepping.document(), functions={"gradient": CountingGradient()})
    request = rig.request(sampling=Sampling(kind="poisson", rate=0.1))
    rig.open(request)
    sizes = [len(drawn(rig, step, 0.1)[0]) for step in range(6)]
    assert all(0 < size < stepping.K for size in sizes)
    for step in range(6):
        assert not rig.sum_without_noise(request, step, SENT).any()
    assert worked == [batches.room(0.1, 60)] * 6 * len(rig.places)
    rig.close()


def test_a_batch_of_nobody_is_noise_alone(rig):
    request = rig.request(sampling=Sampling(kind="poisson", rate=1e-9))
    rig.open(request)
    assert len(drawn(rig, 0, 1e-9)[0]) == 0
    assert not rig.sum_without_noise(request, 0, SENT).any()
    answers = rig.answers(request, 0, SENT)
    assert {len(each) for each in answers} == {network().size}


def test_dropout_is_the_same_at_all_helpers_and_another_every_step(several):
    made = network(dropout=128)
    request = several.request(made=made, sampling=Sampling(kind="whole"))
    several.open(request)
    rows = [range(len(truth["clicks"])) for truth in several.truth]
    sums = []
    for step in range(3):
        seeds = b"".join(several.seeds[digest] for digest in several.digests)
        slots = step.to_bytes(8, "big") * len(several.digests)
        secret = hashlib.sha256(b"maskedlark v2 step randomness" + seeds + slots).digest()
        sums.append(several.sum_without_noise(request, step, body(made)))
        same(sums[-1], expected(several, rows, made=made, seed=secret))
    assert len({each.tobytes() for each in sums}) == 3


def test_models_of_one_dataset_never_share_a_slot(rig):
    made = network(2, (SquaredError(),))
    one, other = rig.request(1), rig.request(2, made, tag="basket")
    rig.open(one)
    rig.open(other)
    clip = Clip(2.0, Norm.L2, 20, 0)
    found = rig.sum_without_noise(other, 0, body(made))
    same(found, expected(rig, drawn(rig, 0, tag="basket", first=1000), "basket", made, clip))
    same(rig.sum_without_noise(one, 0, SENT), expected(rig, drawn(rig, 0)))
    again = rig.request(3)
    rig.open(again)
    same(rig.sum_without_noise(again, 0, SENT), expected(rig, drawn(rig, 0, first=2000)))


@pytest.mark.parametrize("sent", [b"", SENT[:-1], SENT + b"\0", b"\2" + SENT[1:], SENT[:6] + b"\xff" * 30])
def test_a_bad_body_takes_no_step(rig, sent):
    request = rig.request()
    rig.open(request)
    with pytest.raises(MaskedLarkError) as caught:
        rig.answers(request, 0, sent)
    assert problem.of(caught.value).status in (400, 422)
    assert rig.used(request) == [0, 0]
    same(rig.sum_without_noise(request, 0, SENT), expected(rig, drawn(rig, 0)))


def test_what_could_leave_the_field_takes_no_step(rig):
    described = model.describe(network(), fraction=30).model_dump(mode="json")
    request = rig.request(noise=1e9, arguments=described, sampling=Sampling(kind="whole"))
    rig.open(request)
    with pytest.raises(FieldOverflow, match="the field"):
        rig.answers(request, 0, SENT)
    assert rig.used(request) == [0, 0]


def test_the_same_body_gets_the_same_bytes_also_after_a_restart(rig):
    request = rig.request()
    rig.open(request)
    before = [each.tobytes() for each in rig.answers(request, 0, SENT)]
    assert [each.tobytes() for each in rig.answers(request, 0, SENT)] == before
    rig.pipelines = [rig.start(place) for place in rig.places]
    assert [each.tobytes() for each in rig.answers(request, 0, SENT)] == before
    rig.open(request)
    assert [each.tobytes() for each in rig.answers(request, 0, SENT)] == before


def test_another_body_is_refused_also_after_a_restart(rig):
    request = rig.request()
    rig.open(request)
    rig.answers(request, 0, SENT)
    for _ in range(2):
        with pytest.raises(StepTaken) as caught:
            rig.answers(request, 0, OTHER_WEIGHTS)
        assert problem.of(caught.value).status == 409
        rig.pipelines = [rig.start(place) for place in rig.places]
    assert rig.used(request) == [1, 1]


@pytest.fixture
def worked(monkeypatch):
    """How many records every computation was over."""
    return stepping.worked(monkeypatch, GradientQuery)


def test_an_answer_is_kept_and_not_computed_again(rig, worked):
    request = rig.request()
    rig.open(request)
    before = [each.tobytes() for each in rig.answers(request, 0, SENT)]
    assert len(worked) == 2
    for _ in range(5):
        rig.pipelines = [rig.start(place) for place in rig.places]
        assert [each.tobytes() for each in rig.answers(request, 0, SENT)] == before
    assert len(worked) == 2
    rig.answers(request, 1, SENT)
    assert len(worked) == 4
    for pipeline in rig.pipelines:
        with pytest.raises(StepOver) as caught:
            pipeline.step(ORIGIN, bytes.fromhex(request.id), 0, SENT)
        assert problem.of(caught.value).status == 409
    assert len(worked) == 4


@pytest.mark.parametrize("damage", [None, b"", b"short", bytes(200)])
def test_an_answer_that_a_crash_lost_is_computed_again_to_the_bit(rig, worked, damage):
    request = rig.request()
    rig.open(request)
    rig.answers(request, 0, SENT)
    before = [each.tobytes() for each in rig.answers(request, 1, SENT)]
    for path in rig.folder.glob("*/answers/*"):
        path.unlink() if damage is None else path.write_bytes(damage)
    rig.pipelines = [rig.start(place) for place in rig.places]
    assert [each.tobytes() for each in rig.answers(request, 1, SENT)] == before
    assert len(worked) == 6


def test_who_asks_twice_at_once_is_answered_by_one(rig, worked):
    request = rig.request()
    rig.open(request)
    ready = Barrier(6)

    def ask(_):
        ready.wait()
        return rig.pipelines[0].step(ORIGIN, bytes.fromhex(request.id), 0, SENT).tobytes()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(ask, range(6)))) == 1
    assert len(worked) == 1


def test_work_over_several_datasets_is_of_one_size_in_each(several, worked):
    """A victim alone in one of them must not show by the work that its batch makes."""
    request = several.request(sampling=Sampling(kind="poisson", rate=0.2))
    several.open(request)
    for step in range(6):
        several.answers(request, step, SENT)
    assert worked == [batches.room(0.2, 60), batches.room(0.2, 45)] * 6 * len(several.places)


def test_every_helpers_answer_is_uniform_by_itself(rig):
    """Also of a batch below k, of which nothing but noise is in the sum. One false alarm in a million."""
    request = rig.request(sampling=Sampling(kind="poisson", rate=0.1), steps=200, noise=300.0)
    rig.open(request)
    answers = np.array([rig.answers(request, step, SENT) for step in range(200)])
    for place in rig.places:
        spread = answers[:, place].ravel() / field.P
        assert stats.kstest(spread, "uniform").pvalue > 1e-6
    assert np.abs(field.to_signed(field.add(answers[:, 0], answers[:, 1]))).max() < 1 << 50


@pytest.mark.parametrize("place", [0, 1, 2])
def test_helpers_that_differ_in_anything_add_up_to_nothing(tmp_path, place):
    """One of three helpers has another body, slot, order, seed, engine or document: the sum is uniform."""
    differing: dict[str, dict[str, Any]] = {
        "same": {},
        "body": {"sent": OTHER_WEIGHTS},
        "slot": {"slots": (500,)},
        "noise": {"noise": 5.0},
        "steps": {"steps": 7},
        "rate": {"sampling": Sampling(kind="poisson", rate=0.5)},
        "tag": {"id": f"{7:032x}"},
    }
    for number, (what, changes) in enumerate(differing.items()):
        folder = tmp_path / what
        folder.mkdir()
        rig = Rig(folder, stepping.document(3))
        sent = [SENT] * 3
        sent[place] = changes.pop("sent", SENT)
        asked = [rig.request(1)] * 3
        asked[place] = rig.request(1, **changes)
        answers = []
        for pipeline, request, each in zip(rig.pipelines, asked, sent, strict=True):
            pipeline.open_session(ORIGIN, request.encode(), request)
            answers.append(pipeline.step(ORIGIN, bytes.fromhex(request.id), 0, each))
        total = np.abs(field.to_signed(reduce(field.add, answers)))
        # Fourteen uniform numbers are all below 2^50 with a probability of 2^-140.
        assert (total.max() < 1 << 50) == (number == 0), what
        rig.close()


def test_every_step_has_a_mask_of_its_own(rig):
    """Of two batches of nobody, by the same body, two answers of one helper differ by more than noise."""
    request = rig.request(sampling=Sampling(kind="poisson", rate=1e-9))
    rig.open(request)
    one, two = (rig.answers(request, step, SENT) for step in (0, 1))
    for place in rig.places:
        assert np.abs(field.to_signed(field.subtract(one[place], two[place]))).max() > 1 << 50


def test_another_engine_version_adds_up_to_nothing(rig, monkeypatch):
    request = rig.request()
    rig.open(request)
    one = rig.pipelines[0].step(ORIGIN, bytes.fromhex(request.id), 0, SENT)
    differing: dict[str, Any] = {
        "maskedlark.functions.model.EXACT_VERSION": 99,
        "maskedlark.core.batches.VERSION": 99,
        "maskedlark.dp.sampling.batch_bound": lambda *_: 5,
    }
    for number, (name, other_one) in enumerate(differing.items()):
        (folder := rig.folder / f"other-{number}").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(name, other_one)
            other = Rig(folder, rig.document)
            other.open(request)
            two = other.pipelines[1].step(ORIGIN, bytes.fromhex(request.id), 0, SENT)
        assert np.abs(field.to_signed(field.add(one, two))).max() > 1 << 50, name
        other.close()


def test_a_session_is_not_gone_on_with_by_who_draws_otherwise(rig, monkeypatch):
    """Else one step would have two answers, under one mask and one noise."""
    request = rig.request()
    rig.open(request)
    rig.answers(request, 0, SENT)
    monkeypatch.setattr(batches, "VERSION", 2)
    rig.pipelines = [rig.start(place) for place in rig.places]
    for step in (0, 1):
        with pytest.raises(CannotRepeat):
            rig.answers(request, step, SENT)


def test_what_expired_or_is_closed_is_held_no_more(rig):
    requests = [rig.request(number) for number in (1, 2)]
    for request in requests:
        rig.open(request)
        rig.answers(request, 0, SENT)
    pipeline = rig.pipelines[0]
    assert len(pipeline._open) == 2
    pipeline.close_session(ORIGIN, bytes.fromhex(requests[0].id))
    pipeline.forget(stepping.EXPIRES - 1)
    assert len(pipeline._open) == 1
    pipeline.forget(stepping.EXPIRES)
    assert not pipeline._open


def test_an_answer_that_cannot_be_kept_is_not_computed(rig, worked, monkeypatch):
    """Else whoever asks again and again could measure it as often."""
    request = rig.request()
    rig.open(request)

    def full(*_):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        for _ in range(3):
            with pytest.raises(StorageUnavailable):
                rig.answers(request, 0, SENT)
    assert not worked
    assert rig.used(request) == [0, 0]
    rig.answers(request, 0, SENT)


def test_every_step_has_noise_of_its_own(rig):
    request = rig.request(sampling=Sampling(kind="whole"))
    rig.open(request)
    answers = [rig.answers(request, step, SENT)[0].tobytes() for step in range(6)]
    assert len(set(answers)) == 6


@pytest.mark.parametrize("step", [6, 7, 1 << 40])
def test_there_is_no_step_behind_the_last(rig, step):
    request = rig.request()
    rig.open(request)
    with pytest.raises(NoSuchStep) as caught:
        rig.answers(request, step, SENT)
    assert problem.of(caught.value).status == 404


def test_a_session_of_another_origin_or_of_none_is_not_there(rig):
    request = rig.request()
    for origin in (ORIGIN, "other.example"):
        with pytest.raises(NoSuchSession) as caught:
            rig.pipelines[0].step(origin, bytes.fromhex(request.id), 0, SENT)
        assert problem.of(caught.value).status == 404
        rig.open(request)


def test_of_a_closed_session_nothing_is_answered_any_more(rig):
    request = rig.request()
    rig.open(request)
    rig.answers(request, 0, SENT)
    closed = [pipeline.close_session(ORIGIN, bytes.fromhex(request.id)) for pipeline in rig.pipelines]
    assert [pipeline.close_session(ORIGIN, bytes.fromhex(request.id)) for pipeline in rig.pipelines] == closed
    for step in (0, 1):
        with pytest.raises(SessionClosed) as caught:
            rig.answers(request, step, SENT)
        assert problem.of(caught.value).status == 409
    assert not list(rig.folder.glob("*/answers/*"))


def test_nothing_is_answered_over_what_has_expired(rig):
    request = rig.request()
    rig.open(request)
    rig.answers(request, 0, SENT)
    rig.expired = True
    for step in (0, 1):
        with pytest.raises(Expired):
            rig.answers(request, step, SENT)
    rig.expired = False
    assert rig.used(request) == [1, 1]


def test_nothing_is_drawn_before_the_budget_was_looked_at(rig, monkeypatch):
    """Of an opening over the budget nobody has work that could be asked for again and again."""
    monkeypatch.setattr(batches, "poisson", lambda *_: pytest.fail("a batch is drawn"))
    with pytest.raises(BudgetExhausted):
        rig.open(rig.request(noise=0.5, steps=1 << 20, sampling=Sampling(kind="poisson", rate=0.9)))
    rig.open(rig.request())


def test_no_record_is_in_more_batches_than_were_charged(rig, monkeypatch):
    monkeypatch.setattr(sampling, "batch_bound", lambda *_: 3)
    request = rig.request(steps=8, sampling=Sampling(kind="poisson", rate=0.9), noise=8.0)
    rig.open(request)
    batches_of = rig.pipelines[0].session(ORIGIN, bytes.fromhex(request.id)).batches
    seen = np.zeros(60, int)
    for step in range(8):
        work = batches_of.work(step)
        seen[work.rows[0][work.counted]] += 1
    assert seen.max() == 3


def refused(rig, error, status=422, **changes):
    request = rig.request(**changes)
    with pytest.raises(error) as caught:
        rig.open(request)
    assert problem.of(caught.value).status == status
    with pytest.raises(NoSuchSession):
        rig.used(request)
    return caught.value


def test_sessions_that_are_not_opened(rig):
    twice = (rig.digests[0].hex(),) * 2
    refused(rig, UnknownFunction, 404, function="sums")
    refused(rig, MixedDatasets, datasets=twice, slots=(0, 100))
    refused(rig, NoiseTooSmall, noise=0.4)
    refused(rig, NoiseTooSmall, noise=None)
    refused(rig, BadArguments, arguments={})
    refused(rig, BadArguments, arguments=model.describe(network(5)).model_dump(mode="json"))
    refused(rig, BadArguments, tag="basket")
    rig.open(rig.request())


def test_records_of_another_purpose_or_document_are_refused(several):
    several.held[0][1].document = stepping.document(len(several.places), fake_rate=0.1)
    refused(several, MixedDatasets)
    for held in several.held[0]:
        held.purpose = Purpose.AGGREGATE
    refused(several, MixedDatasets)
    several.held[0][1].document = several.document
    refused(several, OtherPurpose)


def test_too_few_and_too_many_records_open_no_session(tmp_path):
    few = Rig(tmp_path, stepping.document(k=61))
    refused(few, TooFewRecords)
    few.close()
    (tmp_path / "many").mkdir()
    many = Rig(tmp_path / "many", stepping.document(max_records=59))
    refused(many, TooManyRecords, sampling=Sampling(kind="whole"))
    many.open(many.request(sampling=Sampling(kind="partition", batches=2)))
    many.close()


def test_another_request_under_an_id_is_refused(rig):
    rig.open(rig.request())
    with pytest.raises(ReleaseRefused) as caught:
        rig.open(rig.request(sampling=Sampling(kind="whole")))
    assert problem.of(caught.value).status == 409


def test_no_more_sessions_are_kept_ready_than_there_is_room_for(rig, monkeypatch):
    monkeypatch.setattr(release, "MAX_SESSIONS", 2)
    requests = [rig.request(number) for number in range(1, 5)]
    for request in requests:
        rig.open(request)
        rig.answers(request, 0, SENT)
    assert len(rig.pipelines[0]._open) == 2
    assert len(rig.answers(requests[0], 0, SENT)[0]) == network().size


def held_bytes(pipeline):
    """What sessions hold of what they drew."""
    return [sum(seen.nbytes for seen in each.batches._kept.seen) for each in pipeline._open.values()]


def test_of_what_sessions_drew_as_much_is_kept_as_there_is_room_for(rig, monkeypatch):
    """The others draw it again: answers are the same."""
    monkeypatch.setattr(release, "KEPT_BYTES", 2 * 4 * 60)
    requests = [rig.request(number) for number in range(1, 4)]
    for request in requests:
        rig.open(request)
    turns = [(request, step) for step in range(3) for request in requests]
    for request, step in turns:
        same(
            rig.sum_without_noise(request, step, SENT),
            expected(rig, drawn(rig, step, first=request.slots[0])),
        )
        assert sum(held_bytes(rig.pipelines[0])) <= release.KEPT_BYTES


def test_one_session_alone_keeps_what_it_needs_however_much(rig, monkeypatch):
    monkeypatch.setattr(release, "KEPT_BYTES", 1)
    for number in (1, 2):
        rig.open(rig.request(number))
        rig.answers(rig.request(number), 0, SENT)
    assert held_bytes(rig.pipelines[0]) == [0, 240]


def test_a_session_that_another_process_closed_goes_from_memory_within_an_hour(rig):
    for number in (1, 2):
        rig.open(rig.request(number))
        rig.answers(rig.request(number), 0, SENT)
    pipeline, name = rig.pipelines[0], (ORIGIN, bytes.fromhex(rig.request(1).id))
    rig.sessions[0].close(rig.document, name[1])
    assert name in pipeline._open
    pipeline.forget(0)
    assert [*pipeline._open] == [(ORIGIN, bytes.fromhex(rig.request(2).id))]


def test_what_has_expired_goes_from_memory_though_the_database_is_away(rig, monkeypatch):
    rig.open(rig.request())
    rig.answers(rig.request(), 0, SENT)
    pipeline = rig.pipelines[0]

    def away(*_):
        raise ConnectionError

    monkeypatch.setattr(pipeline._sessions, "find", away)
    with pytest.raises(ConnectionError):
        pipeline.forget(0)
    assert pipeline._open
    pipeline.forget(1 << 62)
    assert not pipeline._open


def test_weights_of_another_network_are_refused(rig):
    request = rig.request()
    rig.open(request)
    with pytest.raises(WrongLength):
        rig.answers(request, 0, body(network(5)))


def test_a_pipeline_knows_its_functions(rig):
    assert set(rig.pipelines[0].functions) == {"gradient", "cells"}


def test_functions_have_noise_of_their_own_over_the_same_records(tmp_path):
    """Laplace cells beside Gaussian gradients: charges, receipts and ranges follow the function."""
    mechanisms = {
        "gradient": {"kind": "gaussian", "noise_floor": 0.5},
        "cells": {"kind": "laplace", "noise_floor": 2.0},
    }
    document = stepping.document(
        values=[], models=cases.settings()["models"][:1], decoys=[], fake_rate=0.0, mechanisms=mechanisms
    )
    rig = Rig(tmp_path, document, (90,))
    rig.open(rig.request())
    rig.answers(rig.request(), 0, SENT)
    arguments = {
        "tag": "clicks",
        "model": model.describe(network()).model_dump(mode="json"),
        "weights": base64.b64encode(SENT).decode(),
        "tables": [{"cells": {"kind": "buckets", "edges": [-1.0, 0.0, 1.0]}}],
        "part": "training",
        "held_out": 0.1,
    }
    given: dict[str, Any] = {
        "datasets": tuple(digest.hex() for digest in rig.digests),
        "function": "cells",
    }
    with pytest.raises(NoiseTooSmall, match="below the declared 2"):
        ask(rig, Request(id="7" * 32, arguments=arguments, noise=1.0, **given))
    answered = ask(rig, Request(id="8" * 32, arguments=arguments, noise=4.0, **given))
    assert {each.receipt.claimed().charge.mechanism for each in answered} == {"laplace"}
    assert sharing.combine([each.tables[0].columns[0].ravel() for each in answered]).shape == (8,)
    for place, (ledger, _, _) in enumerate(rig.ledgers):
        rig.pipelines[place].close_session(ORIGIN, bytes.fromhex(rig.request().id))
        verified = verify(ledger.receipts(ORIGIN), ORIGIN, f"helper-{place}", [document])
        assert [each.kind for each in verified.receipts][-3:] == ["opened", "release", "closed"]
    rig.close()


def ask(rig, request):
    return [pipeline.answer(ORIGIN, request.encode(), request) for pipeline in rig.pipelines]


@pytest.mark.parametrize("declared", ["gradient", "cells"])
def test_a_function_without_declared_noise_costs_nothing(tmp_path, declared):
    mechanisms = {name: cases.settings()["mechanisms"][name] for name in ("sums", declared)}
    rig = Rig(tmp_path, stepping.document(mechanisms=mechanisms))
    before = len(rig.ledgers[0][0].receipts(ORIGIN))
    given: dict[str, Any] = {"datasets": tuple(digest.hex() for digest in rig.digests), "arguments": {}}
    cells = Request(id="7" * 32, function="cells", noise=4.0, **given)
    with pytest.raises(NoMechanism, match=f"it does for {declared}, sums"):
        ask(rig, cells) if declared == "gradient" else rig.open(rig.request())
    assert problem.of(NoMechanism("")).status == 422
    assert len(rig.ledgers[0][0].receipts(ORIGIN)) == before
    rig.close()
