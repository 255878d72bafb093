"""Do helpers read labels from their masks? All that helpers but one see, against what chance alone gives.

The same attacks read the paper's prototype: so they are not blind.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from maskedlark.audit import attacks, prototype
from maskedlark.audit.attacks import Advantage, advantage
from maskedlark.cli.audits.finding import DEVIATIONS, Finding
from maskedlark.clock import SystemClock
from maskedlark.errors import NotMersenne
from maskedlark.randomness import Randomness
from maskedlark.workflow import View, Workflow

Flags = NDArray[np.bool_]
_FEATURES, _TAG = 8, "audited"
_PLAIN = {"sign of masks": attacks.by_sign, "size of masks": attacks.by_size}


def run(users: int, helpers: int, rng: Randomness) -> list[Finding]:
    """Advantages over guessing."""
    labels = rng.below(2, users)
    features = np.frombuffer(rng.bytes(_FEATURES * users), np.uint8).reshape(users, _FEATURES)
    with Workflow.declared(f"models.{_TAG} = {{features = {_FEATURES}}}", helpers, SystemClock(), rng) as way:
        way.train(_TAG, _TAG, features, [labels])
        views = way.views[_TAG]
    # Browsers report in an order of their own: the truth is what all helpers' shares add up to.
    return [*_naive(labels, labels == 1), *_ours(views, attacks.labels(views) == 1)]


def _naive(labels: NDArray[np.int64], truth: Flags) -> Iterator[Finding]:
    """The paper's prototype."""
    first, second = prototype.masks(labels, prototype.generator(2021))
    for name, attack in _PLAIN.items():
        yield _control(name, advantage(attack(second), truth))
    yield _control("generator of masks", advantage(prototype.read_labels(first) == 1, truth))
    rows = attacks.bits(second.tobytes(), len(labels)).astype(np.float64)
    for name, found in attacks.learn(rows, truth).items():
        yield _control(f"learner ({name})", found)


def _ours(ours: tuple[View, ...], truth: Flags) -> Iterator[Finding]:
    for place, seen in enumerate(ours):
        view, who = attacks.as_signed(seen.shares), f"helper-{place}"
        for name, attack in _PLAIN.items():
            yield _finding(name, who, advantage(attack(view), truth))
        yield Finding("generator of masks", who, _generator(seen.shares, truth), 0.0)
    for missing in range(len(ours)):
        coalition = [seen for place, seen in enumerate(ours) if place != missing]
        for name, found in attacks.learn(attacks.as_rows(coalition), truth).items():
            yield _finding(f"learner ({name})", f"all helpers but helper-{missing}", found)


def _generator(shares: NDArray[np.int64], truth: Flags) -> float:
    """0 where no generator is found behind the masks."""
    try:
        return abs(advantage(prototype.read_labels(attacks.as_uniform(shares)) == 1, truth).value)
    except NotMersenne:
        return 0.0


def _control(name: str, found: Advantage) -> Finding:
    return Finding(name, "a helper of the paper's prototype", found.value, None, 0.9)


def _finding(name: str, who: str, found: Advantage) -> Finding:
    # Whichever way: who is wrong too often turns the guess round.
    return Finding(name, who, abs(found.value), DEVIATIONS * found.error)
