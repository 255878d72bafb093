"""The demo's helpers attack: what they read of labels from the masks they hold, in the prototype and here."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from maskedlark.audit import attacks, prototype
from maskedlark.audit.attacks import Advantage, advantage
from maskedlark.cli.acts.found import NO_STATE, Attack, Won
from maskedlark.cli.acts.tables import table
from maskedlark.errors import NotMersenne
from maskedlark.workflow import View


def act(console: Console, trained: tuple[View, ...]) -> tuple[Attack, ...]:
    """Two attacks that win against the paper's prototype."""
    labels, shares = attacks.labels(trained), [view.shares for view in trained]
    truth = labels == 1
    first, last = prototype.masks(labels, prototype.generator(2021))
    signs = [attacks.by_sign(last), attacks.by_sign(attacks.as_signed(shares[-1]))]
    found = (
        Attack("sign of the last helper's masks", *(_won(advantage(each, truth)) for each in signs)),
        Attack(
            "generator behind helper-0's masks",
            _mersenne(first, truth),
            _mersenne(attacks.as_uniform(shares[0]), truth),
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
        return _won(advantage(prototype.read_labels(view) == 1, truth))
    except NotMersenne:
        return None


def _won(found: Advantage) -> Won:
    return Won(found.value, found.error)
