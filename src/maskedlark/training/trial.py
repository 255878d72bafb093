"""A recipe's optimiser and scheduler, tried on noise alone before anything is charged. Run by the ad server.

Whoever changes ε or the number of steps of a recipe seldom changes its learning rate too: noise then carries
the weights away, or the last steps change nothing. Both are paid for, and only an evaluation would tell.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

MAX_DRAWS = 1 << 28
"""Of noise: more would take seconds."""
_CARRIED_AWAY = 2.0
"""Logits. On three tables, of 14 to 317 bytes, three learning rates and five noises, models were worse than a
constant from 1.7 to 2.5 on, and next to those without noise below 1."""


@dataclass(frozen=True)
class Trial:
    """What was found."""

    steps: int
    last_step: int
    """The last one whose learning rate is not 0, counted from 1."""
    lr: float
    """The first step's: the largest of all groups."""
    moved: float | None
    """How far noise alone moves a score, one deviation; None where there is none, or no row to score."""

    def figures(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def lines(self) -> list[str]:
        """What to change, if anything."""
        lines = []
        if self.last_step < self.steps:
            lines.append(
                f"The learning rate is 0 after {self.last_step} of {self.steps} steps: the others change "
                f"nothing, and make all noisier. Take steps = {self.last_step}, or a longer [scheduler]"
            )
        if self.moved is not None and self.moved > _CARRIED_AWAY:
            lines.append(
                f"Noise alone would move scores by ± {self.moved:.2g} (logits): the model may be worse than "
                f"a constant. Take a lower lr, as in lr = {self.lr / self.moved:.2g}, or a larger ε"
            )
        return lines


def run(
    model: nn.Module,
    steppers: Callable[[nn.Module], Sequence[Any]],
    steps: int,
    deviation: float,
    rows: torch.Tensor | None,
) -> Trial:
    """Take all steps on a copy, with gradients of noise. `steppers`: an optimiser, and a scheduler if any."""
    tried = copy.deepcopy(model).eval()
    optimizer, *schedulers = steppers(tried)
    trained = [each for each in tried.parameters() if each.requires_grad]
    rates = [group["lr"] for group in optimizer.param_groups]
    draws, dice, last = steps * sum(each.numel() for each in trained), torch.Generator(), 0
    scored = rows if deviation > 0 and draws <= MAX_DRAWS else None
    before = None if scored is None else _scores(tried, scored)
    dice.manual_seed(0)
    for step in range(1, steps + 1):
        if any(group["lr"] != 0 for group in optimizer.param_groups):
            last = step
        for each in trained:
            noise = None if scored is None else torch.randn(each.shape, generator=dice) * deviation
            each.grad = None if noise is None else noise.to(each)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    moved = None
    if scored is not None and before is not None:
        moved = float((_scores(tried, scored) - before).square().mean().sqrt())
    return Trial(steps, last, float(max(rates)), moved)


def _scores(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        scores: torch.Tensor = model(rows).double().flatten()
        return scores
