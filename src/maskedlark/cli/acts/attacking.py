"""The demo's helpers attack: what they read of labels from the masks they hold, in the prototype and here."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from maskedlark.audit import masks, mersenne, prototype
from maskedlark.audit.advantage import advantage
from maskedlark.cli.acts.tables import table
from maskedlark.core import field
from maskedlark.errors import NotMersenne
from maskedlark.workflow import Workflow


def act(console: Console, trained: Workflow) -> None:
    """Two attacks that win against the paper's prototype."""
    shares = [helper.opened.shares for helper in trained.helpers]
    labels = field.to_signed(field.total(np.stack(shares)))[:, 1]  # the truth, which no party has
    truth = labels == 1
    first, last = prototype.masks(labels, prototype.generator(2021))
    title = "\nHelpers attack: their advantage over guessing"
    shown = table(title, "attack", "paper's prototype", "ours")
    signs = (
        advantage(masks.by_sign(last), truth),
        advantage(masks.by_sign(masks.as_signed(shares[-1])), truth),
    )
    shown.add_row("sign of the last helper's masks", *map(str, signs))
    states = _mersenne(first, truth), _mersenne(masks.as_uniform(shares[0]), truth)
    shown.add_row("generator behind helper-0's masks", *states)
    console.print(shown)
    console.print("An advantage of 1 reads every label, 0 reads none.\n")


def _mersenne(view: NDArray[np.float64], truth: NDArray[np.bool_]) -> str:
    try:
        return str(advantage(mersenne.read_labels(view) == 1, truth))
    except NotMersenne:
        return "finds no state"
