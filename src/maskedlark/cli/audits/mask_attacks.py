"""Do helpers read labels from their masks? All that helpers but one see, against what chance alone gives.

The same attacks read the paper's prototype: so they are not blind.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from maskedlark import workflow
from maskedlark.audit import classifier, masks, mersenne, prototype, views
from maskedlark.audit.advantage import Advantage, advantage
from maskedlark.audit.mersenne import NotMersenne
from maskedlark.cli.audits.findings import DEVIATIONS, Finding
from maskedlark.clock import SystemClock
from maskedlark.core.declared import Model
from maskedlark.randomness import Randomness
from maskedlark.workflow import Workflow

Flags = NDArray[np.bool_]
_FEATURES = 8
_PLAIN = {"sign of masks": masks.by_sign, "size of masks": masks.by_size}


def run(users: int, helpers: int, rng: Randomness) -> list[Finding]:
    """Advantages over guessing."""
    labels = rng.below(2, users)
    features = np.frombuffer(rng.bytes(_FEATURES * users), np.uint8).reshape(users, _FEATURES)
    ours = workflow.train(Model("audited", _FEATURES), features, [labels], helpers, rng, SystemClock())
    truth = labels == 1
    controls = [
        Finding(name, "a helper of the paper's prototype", won.value, None, 0.9)
        for name, won in _attack_prototype(labels, truth)
    ]
    return [*controls, *_attack_ours(ours, truth)]


def _attack_prototype(labels: NDArray[np.int64], truth: Flags) -> Iterator[tuple[str, Advantage]]:
    first, second = prototype.masks(labels, prototype.generator(2021))
    for name, attack in _PLAIN.items():
        yield name, advantage(attack(second), truth)
    yield "generator of masks", advantage(mersenne.read_labels(first) == 1, truth)
    rows = views.bits(second.tobytes(), len(labels)).astype(np.float64)
    for name, won in classifier.attack(rows, truth).items():
        yield f"learner ({name})", won


def _attack_ours(ours: Workflow, truth: Flags) -> Iterator[Finding]:
    for place, helper in enumerate(ours.helpers):
        view, who = masks.as_signed(helper.opened.shares), f"helper-{place}"
        for name, attack in _PLAIN.items():
            yield _finding(name, who, advantage(attack(view), truth))
        yield Finding("generator of masks", who, _generator(helper.opened.shares, truth), 0.0)
    for missing in range(len(ours.helpers)):
        coalition = [helper for place, helper in enumerate(ours.helpers) if place != missing]
        for name, won in classifier.attack(views.of_helpers(coalition), truth).items():
            yield _finding(f"learner ({name})", f"all helpers but helper-{missing}", won)


def _generator(shares: NDArray[np.int64], truth: Flags) -> float:
    """0 where no generator is found behind the masks."""
    try:
        return abs(advantage(mersenne.read_labels(masks.as_uniform(shares)) == 1, truth).value)
    except NotMersenne:
        return 0.0


def _finding(name: str, who: str, won: Advantage) -> Finding:
    # Whichever way: who is wrong too often turns the guess round.
    return Finding(name, who, abs(won.value), DEVIATIONS * won.error)
