"""Can all helpers but one read labels from what they see, better than by chance?

The same attacks succeed against the paper's prototype, so they are not blind.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from maskedlark.audit import attacks, prototype
from maskedlark.audit.attacks import Advantage, Flags, advantage
from maskedlark.audit.prototype import NotMersenne
from maskedlark.cli.audits.findings import DEVIATIONS, Finding
from maskedlark.clock import SystemClock
from maskedlark.randomness import Randomness
from maskedlark.workflow import View, Workflow

_FEATURES, _TAG = 8, "audited"
_PLAIN = {"sign of masks": attacks.by_sign, "size of masks": attacks.by_size}


def run(users: int, helpers: int, rng: Randomness) -> list[Finding]:
    """The advantages over guessing."""
    labels = rng.below(2, users)
    features = np.frombuffer(rng.bytes(_FEATURES * users), np.uint8).reshape(users, _FEATURES)
    settings = f'models.{_TAG}.columns = [{{kind = "bytes", count = {_FEATURES}}}]'
    with Workflow.declared(settings, helpers, SystemClock(), rng) as way:
        way.make_training_dataset(_TAG, _TAG, features, [labels])
        views = way.views[_TAG]
    # Browsers report in a random order, so the truth is taken from the sum of all shares.
    controls = [
        Finding(name, "a helper of the paper's prototype", won.value, None, 0.9)
        for name, won in _attack_prototype(labels, labels == 1)
    ]
    return [*controls, *_attack_ours(views, attacks.labels(views) == 1)]


def _attack_prototype(labels: NDArray[np.int64], truth: Flags) -> Iterator[tuple[str, Advantage]]:
    first, second = prototype.masks(labels, prototype.generator(2021))
    for name, attack in _PLAIN.items():
        yield name, advantage(attack(second), truth)
    yield "generator of masks", advantage(prototype.read_labels(first) == 1, truth)
    rows = attacks.bits(second.tobytes(), len(labels)).astype(np.float64)
    for name, won in attacks.learn(rows, truth).items():
        yield f"learner ({name})", won


def _attack_ours(ours: tuple[View, ...], truth: Flags) -> Iterator[Finding]:
    for place, seen in enumerate(ours):
        view, who = attacks.as_signed(seen.shares), f"helper-{place}"
        for name, attack in _PLAIN.items():
            yield _finding(name, who, advantage(attack(view), truth))
        state = read_generator(attacks.as_uniform(seen.shares), truth)
        yield Finding("generator of masks", who, 0.0 if state is None else abs(state.value), 0.0)
    for missing in range(len(ours)):
        coalition = [seen for place, seen in enumerate(ours) if place != missing]
        for name, won in attacks.learn(attacks.as_rows(coalition), truth).items():
            yield _finding(f"learner ({name})", f"all helpers but helper-{missing}", won)


def read_generator(view: attacks.Rows, truth: Flags) -> Advantage | None:
    """None if no generator state is found in the masks."""
    try:
        return advantage(prototype.read_labels(view) == 1, truth)
    except NotMersenne:
        return None


def _finding(name: str, who: str, won: Advantage) -> Finding:
    # The absolute value: an attacker who is wrong too often inverts the guess.
    return Finding(name, who, abs(won.value), DEVIATIONS * won.error)
