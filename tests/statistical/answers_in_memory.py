"""Attacks on answers that need no process: two helpers' pipelines in memory, with ledgers of their own.

All seeds are fixed. Each returns what it found; `test_answers` judges it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from maskedlark.audit import answers, attacks, canaries
from maskedlark.audit.answers import Guesses
from maskedlark.audit.attacks import Advantage
from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.dp.sampling import Sampling
from maskedlark.exact import gradient as exact
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import weights
from maskedlark.functions.gradient import Gradient
from maskedlark.ledger.errors import StepTaken
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import SessionRequest
from maskedlark.release.release import Release
from maskedlark.wire.steps import Ranges
from maskedlark.workflow import Workflow
from tests.statistical import training_in_memory
from tests.statistical.answer_attacks import AttackResult, judged
from tests.statistical.training_in_memory import DIGEST, HelpersInMemory, document, helpers_in_memory
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

COUNT, BOUND, TAIL = 400, 0.05, 1 << 28
"""The tail: of one helper's noise, at 1."""
RATE = 0.2
POISSON = Sampling(kind="poisson", rate=RATE)


def network(features: int) -> Network:
    return Network((Layer(Linear("w0", None, features, 1)),), (BinaryCrossEntropy(),))


def body(features: int, exponent: int = 0) -> bytes:
    """Weights that are all 0. Whatever the exponent, they mean the same."""
    return weights.encode(Quantised(np.zeros(features, np.int16), (exponent,), ()))


@contextmanager
def world(
    folder: Path, count: int = COUNT, k: int = 1, ends: tuple[int, ...] = ()
) -> Iterator[HelpersInMemory]:
    coins = FixedRandomness(b"coins").below(2, count)
    made, rows = document(count, BOUND, k), canaries.features(count)
    with helpers_in_memory(folder, made, rows, coins, FixedRandomness(b"shares"), ends) as found:
        yield found


def coins_of(count: int) -> np.ndarray:
    found: np.ndarray = FixedRandomness(b"coins").below(2, count) == 1
    return found


def ran(here: HelpersInMemory, count: int, steps: int, number: int = 0) -> np.ndarray:
    """The answers of a session: (steps, helpers, count)."""
    here.begin(network(count), POISSON, steps, 1.0, number)
    return np.array([here.answers(body(count)) for _ in range(steps)])


def below_k(folder: Path) -> AttackResult:
    """Whether a batch was below k: then one helper's answer is noise alone, in every number."""
    count, k, steps = 60, 12, 200
    with world(folder, count, k) as here:
        seen = ran(here, count, steps)
        truth = here.drawn().sum(axis=1) < k
    guesses = np.logical_not(answers.is_large(seen[:, 0], TAIL).any(axis=1))
    return AttackResult(answers.guessed(guesses, truth, answers.base_rate(truth)))


def repeated_sessions(folder: Path, steps: int = 20) -> AttackResult:
    """Two sessions with the same weights: answers apart, and what changed from the first to the second."""
    with world(folder) as here:
        seen, drawn = [], []
        for number in (0, 1):
            seen.append(ran(here, COUNT, steps, number))
            drawn.append(here.drawn())
    traces = [np.concatenate(each) for each in zip(*map(answers.traces, seen), strict=True)]
    since = [field.subtract(*(each[:, place] for each in seen)) for place in (0, 1)]
    traces += [np.concatenate([each, each]) for each in since]
    return AttackResult(answers.guess_membership(traces, np.concatenate(drawn), RATE, TAIL))


@dataclass(frozen=True)
class Asked:
    """What one helper is asked: it need not be what the other is."""

    request: SessionRequest
    body: bytes
    chosen: Ranges = ()


class Newer(Gradient):
    """The same function, in another version."""

    version = 2


def differing(folder: Path, change: str) -> float:
    """How much of a sum means something where helpers were not asked the same: the share of small numbers."""
    ends, sampling = ((COUNT // 2,), POISSON) if change == "datasets" else ((), POISSON)
    if change == "chosen":
        sampling = Sampling(kind="chosen", held_out=0.5)
    with world(folder, ends=ends) as here:
        request = here.asking(network(COUNT), sampling, 4, 1.0)
        same = Asked(request, body(COUNT), ((0, COUNT),) if change == "chosen" else ())
        other = {
            "nothing": lambda: same,
            "weights": lambda: replace(same, body=body(COUNT, exponent=1)),
            "noise": lambda: replace(same, request=request.model_copy(update={"noise": 1.5})),
            "steps": lambda: replace(same, request=request.model_copy(update={"steps": 5})),
            "session": lambda: replace(same, request=request.model_copy(update={"id": "a" * 32})),
            "slots": lambda: replace(same, request=request.model_copy(update={"slots": (100,)})),
            "chosen": lambda: replace(same, chosen=((0, COUNT // 2),)),
            "datasets": lambda: replace(
                same, request=request.model_copy(update={"datasets": request.datasets[::-1]})
            ),
            "version": lambda: same,
        }[change]()
        if change == "version":
            here.pipelines[1] = _restarted(here, 1, Newer())
        shares = [_ask(here, place, asked) for place, asked in enumerate((same, other))]
    return float(1 - answers.is_large(sharing.combine(shares), 4 * TAIL).mean())


def _restarted(here: HelpersInMemory, place: int, function: Gradient | None = None) -> Release:
    helper = here.way.helpers[place]
    helper.start({"gradient": function or Gradient()})
    return helper.releases


def _ask(here: HelpersInMemory, place: int, asked: Asked, step: int = 0) -> FieldArray:
    origin, pipeline = here.document.origin, here.pipelines[place]
    pipeline.open_session(origin, asked.request.encode(), asked.request)
    return pipeline.step(origin, bytes.fromhex(asked.request.id), step, asked.body, asked.chosen)


@dataclass(frozen=True)
class Work:
    """What a helper did for steps over two datasets, in one of which a victim is alone."""

    membership: Guesses
    """The victim's, guessed from how many rows the engine was handed, and how often."""
    again: int
    """How often the engine ran for a step that was asked a second time."""
    time: Guesses | None = None
    """The same, guessed from how long steps took that were asked again and again."""


def work(folder: Path, steps: int = 200, repeated: int = 1) -> Work:
    """Attack 4: time. What is measured is work; how long it took is said beside it."""
    handed: list[int] = []
    plain = exact.GradientEngine.share

    def share(self: exact.GradientEngine, records: exact.Batch, block: int | None = None) -> FieldArray:
        handed.append(len(records))
        return plain(self, records, block)

    half, done, took, again = Sampling(kind="poisson", rate=0.5), [], [], 0
    with world(folder, ends=(1,)) as here, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact.GradientEngine, "share", share)
        here.begin(network(COUNT), half, steps, 1.0)
        for number in range(steps):
            handed.clear()
            here.answers(body(COUNT))
            del handed[len(handed) // 2 :]  # Those of the other helper.
            done.append((sum(map(bool, handed)), sum(handed)))
            handed.clear()
            took.append(min(_times(here, number, repeated)))
            again += len(handed)
        truth = here.drawn()[:, 0]
    assert 0.3 < truth.mean() < 0.7
    seen = [np.array(each) for each in zip(*done, strict=True)]
    bins = np.searchsorted(np.quantile(took, np.linspace(0, 1, 21)), took)
    return Work(_learned(seen, truth), again, _learned([bins], truth))


def _times(here: HelpersInMemory, number: int, repeated: int) -> Iterator[float]:
    for _ in range(repeated):
        start = time.perf_counter()
        _answer(here, here.pipelines[0], number)
        yield time.perf_counter() - start


def _learned(seen: list[np.ndarray], truth: np.ndarray) -> Guesses:
    judged_on = truth[len(truth) // 2 :]
    return answers.guessed(answers.learned(seen, truth), judged_on, answers.base_rate(judged_on))


def interrupted(folder: Path, cut: bool) -> list[bytes]:
    """Step 1's answers of a helper that ends between its charge and its answer, and starts again twice.

    Without the cut it only starts again: all seeds are fixed, so that the bytes have to be the same.
    """
    folder.mkdir()
    with world(folder) as here:
        here.begin(network(COUNT), POISSON, 4, 1.0)
        here.answers(body(COUNT))
        with pytest.MonkeyPatch.context() as patch:
            if cut:
                patch.setattr(exact.GradientEngine, "share", _end)
            with pytest.raises(PowerCut) if cut else nullcontext():
                _answer(here, here.pipelines[0], 1)
        with pytest.raises(StepTaken):
            _answer(here, here.pipelines[0], 1, body(COUNT, exponent=1))
        restarted = [_restarted(here, 0) for _ in range(2)]
        return [_answer(here, pipeline, 1).tobytes() for pipeline in restarted]


class PowerCut(Exception):
    """Nothing behind it is done."""


def _end(*_: object) -> FieldArray:
    raise PowerCut


def put_back(folder: Path, copies: int = 8) -> AttackResult:
    """Helper 1's database and anchor are put back, again and again: each time it draws noise of its own.

    Labels are guessed from the mean of all sums. Helper 0's noise is in each of them, and covers them.
    """
    count, steps = 1500, 16
    with world(folder, count) as here:
        first = ran(here, count, steps)[:, 0]
        seen = [_of_copy(here, number, steps, count) for number in range(copies)]
        drawn, opened = here.drawn(), here.opened
    assert opened is not None
    assert opened.session_charge is not None
    charge, unit = opened.session_charge, _unit(here)
    sums = np.mean([field.to_signed(field.add(first, each)) for each in seen], axis=0) / unit
    members = answers.guess_membership(answers.traces(np.stack(seen, axis=1)), drawn, RATE, TAIL)
    scores = canaries.without_batches(-sums, RATE, (1 + 1 / copies) ** 0.5)
    return judged(coins_of(count), scores, members, charge)


def _unit(here: HelpersInMemory) -> float:
    """The sensitivity, as answers have it."""
    (column,) = here._question(0).columns
    return column.sensitivity.l2


def _of_copy(here: HelpersInMemory, number: int, steps: int, count: int) -> FieldArray:
    """Of helper 1 as it was before the session: it has frozen the dataset, and nothing else."""
    noise = [FixedRandomness(f"noise of copy {number}".encode())] * 2
    clock, rng = FixedClock(ledgers.NOW), FixedRandomness(b"copy")
    with Workflow(here.document, cases.HELPER_KEYS[:2], clock, rng, noise=noise) as copy:
        held = [each.held for each in here.held]
        copy.hold(DIGEST.hex(), Purpose.TRAIN, held, DIGEST, training_in_memory.SEED)
        assert here.request is not None
        pipeline = copy.helpers[1].releases
        pipeline.open_session(here.document.origin, here.request.encode(), here.request)
        return np.array([_answer(here, pipeline, step, body(count)) for step in range(steps)])


def _answer(here: HelpersInMemory, pipeline: Release, number: int, sent: bytes | None = None) -> FieldArray:
    assert here.request is not None
    session = bytes.fromhex(here.request.id)
    return pipeline.step(here.document.origin, session, number, sent or body(COUNT))


def learned_bits(folder: Path, steps: int = 20) -> dict[str, Advantage]:
    """Memberships learned from all bits of both helpers' answers, by who is shown half of them."""
    with world(folder) as here:
        seen, truth = ran(here, COUNT, steps), here.drawn().ravel()
    rows = [attacks.bits(field.to_bytes(seen[:, each]), truth.size) for each in (0, 1)]
    return attacks.learn(np.concatenate(rows, axis=1).astype(np.float64), truth)


def uniform(folder: Path, steps: int = 20) -> float:
    """How likely chance makes one helper's answers as far from uniform as they are (Kolmogorov, Smirnov)."""
    with world(folder) as here:
        seen = ran(here, COUNT, steps)[:, 0]
    return float(kstest(seen.ravel() / field.P, "uniform").pvalue)
