"""The demo's helpers attack: what they read of labels from the masks they hold, in the prototype and here."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from maskedlark.audit import masks, mersenne, prototype
from maskedlark.audit.advantage import Advantage, advantage
from maskedlark.audit.mersenne import NotMersenne
from maskedlark.cli.acts.found import NO_STATE, Attack, Won
from maskedlark.cli.acts.tables import table
from maskedlark.core import field
from maskedlark.workflow import Workflow


def act(console: Console, trained: Workflow) -> tuple[Attack, ...]:
    """Two attacks that win against the paper's prototype."""
    shares = [helper.opened.shares for helper in trained.helpers]
    labels = field.to_signed(field.total(np.stack(shares)))[:, 1]  # the truth, which no party has
    truth = labels == 1
    first, last = prototype.masks(labels, prototype.generator(2021))
    signs = [masks.by_sign(last), masks.by_sign(masks.as_signed(shares[-1]))]
    found = (
        Attack("sign of the last helper's masks", *(_won(advantage(each, truth)) for each in signs)),
        Attack(
            "generator behind helper-0's masks",
            _mersenne(first, truth),
            _mersenne(masks.as_uniform(shares[0]), truth),
        ),
    )
    shown = table("\nHelpers attack: their advantage over guessing", "attack", "paper's prototype", "ours")
    for attack in found:
        shown.add_row(attack.name, *(str(won or NO_STATE) for won in (attack.prototype, attack.ours)))
    console.print(shown)
    console.print("An advantage of 1 reads every label, 0 reads none.\n")
    return found


def _mersenne(view: NDArray[np.float64], truth: NDArray[np.bool_]) -> Won | None:
    try:
        return _won(advantage(mersenne.read_labels(view) == 1, truth))
    except NotMersenne:
        return None


def _won(found: Advantage) -> Won:
    return Won(found.value, found.error)
