"""Training through helpers: the user keeps model, optimiser and loop; `step.backward()` queries the helpers.

training = client.training(model, loss="bce", datasets=["2026-11-14"], tag="ConversionModel11005",
                           sampling_rate=0.02, steps=500, epsilon=2.0, against="adserver")
print(training.plan())
for step in training:
    optimizer.zero_grad()
    step.backward()
    optimizer.step()
    training.show(loss=mine())  # next to the bar, if you have labelled records of your own
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from maskedlark.adserver.session import Session
from maskedlark.core.field import FieldArray
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import lift
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.features.encoder import Encoder
from maskedlark.functions import weights
from maskedlark.ledger.errors import SlotTaken, StepOver
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from maskedlark.parameters import randomised
from maskedlark.release.session import body_digest
from maskedlark.training import network as networks
from maskedlark.training.checkpoint import Run, Stateful
from maskedlark.training.plan import TrainingPlan
from maskedlark.training.predictor import Predictor
from maskedlark.training.progress import Bar, bar
from maskedlark.wire.steps import Ranges

CHECKPOINT_EVERY = 10


@dataclass(eq=False, repr=False)
class Training:
    """One run. Iterate over it once: a step answers only one request body, so other weights are refused."""

    model: nn.Module
    network: Network
    clip: Clip
    planned: TrainingPlan
    sums: Session
    loss: str | Sequence[str]
    tag: str
    sample: NDArray[np.uint8] | None
    """Public rows of features that scale the activations; made-up ones do if None."""
    bits: int
    encoder: Encoder | None
    run: Run | None
    every: int
    renewed: Callable[[], tuple[bytes, Session]]
    """Makes the same session with a new id and slots that are free now: its request, and the session."""
    was_charged: bool = False
    """Whether its session was opened before: it carries on, and costs nothing more."""
    console: Console | None = None
    """Where a bar is shown; default: standard error, if that is a terminal."""
    receipts: Mapping[str, OpenedReceipt] = field(default_factory=dict)
    _kept: list[Stateful] = field(default_factory=list)
    _bar: Bar | None = None
    taken: int = 0
    """How many steps were answered, here or before the last checkpoint."""

    def __repr__(self) -> str:
        return f"<Training of {self.tag}: {self.taken} of {len(self)} steps>"

    def plan(self) -> TrainingPlan:
        """Both ε figures, noise, expected signal and bytes. Charges nothing."""
        return self.planned

    def keep(self, *others: Stateful) -> Self:
        """Add optimiser, scheduler etc. to the checkpoints. Call it before iterating."""
        self._kept.extend(others)
        return self

    def show(self, **figures: float) -> None:
        """Show figures next to the bar, as in `training.show(loss=0.43)`, until replaced.

        They are the caller's own, from records with known labels: helpers' answers contain no loss.
        """
        if self._bar is not None:
            self._bar.show(figures)

    def __len__(self) -> int:
        return self.planned.steps

    def __iter__(self) -> Iterator["Step"]:
        kept = [self.model, *self._kept]
        self._check_not_over()
        with self.run.begun() if self.run else nullcontext():
            self.receipts = self._opened()
            first = self._first(kept)
            with bar(self.planned, first, self.console) as self._bar:
                for number in range(first, len(self)):
                    yield Step(self, number)
                    if self._bar is not None:
                        self._bar.advance()
                    if self.run and ((number + 1) % self.every == 0 or number + 1 == len(self)):
                        self.run.save(number + 1, kept)

    def _check_not_over(self) -> None:
        """Refuse a second loop of a run without checkpoints, before helpers do."""
        # After one step helpers still keep its answer: the same weights get it again.
        if self.run is None and self.taken >= min(len(self), 2):
            raise StepOver(
                f"this run has taken {self.taken} of its {len(self)} steps, and takes none again: nothing is "
                "charged. Train more in a new client.training; one with a folder can be interrupted"
            )

    def _opened(self) -> Mapping[str, OpenedReceipt]:
        """Open the session; if another session has taken its slots, use later ones."""
        try:
            return self.sums.open()
        except SlotTaken:  # Nothing is charged: what only some helpers had opened is closed.
            self.sums.stop()
        body, self.sums = self.renewed()
        if self.run is not None:
            self.run.replace(body)
        return self.sums.open()

    def _first(self, kept: Sequence[Stateful]) -> int:
        """The first step: 0, or the checkpoint's."""
        if self.run is None:
            return 0
        first = self.run.load(kept)
        if first is None:
            # Save random initial weights too: step 0 can only be repeated with the same ones.
            self.run.save(0, kept)
        self.taken = first or 0
        return self.taken

    def quantised(self) -> Quantised:
        """The model's weights, quantised as they are sent."""
        rows = networks.scaling_rows(self.network, self.sample, self.encoder)
        return networks.quantised(self.network, self.model, rows, self.bits)

    def gradient(self, number: int, chosen: Ranges = ()) -> NDArray[np.float64]:
        """The private mean gradient of a step at the model's weights, flat."""
        quantised = self.quantised()
        total = self._sum(number, weights.encode(quantised), chosen)
        self.taken = max(self.taken, number + 1)
        size = sum(stop - start for start, stop in chosen) or self.planned.batch
        unit = randomised.UNIT if self.planned.session_charge is None else 1
        return lift(self.network, quantised, self.clip, total) / (size * unit)

    def _sum(self, number: int, body: bytes, chosen: Ranges) -> FieldArray:
        """A step's sum, from disk if it was answered before: helpers keep only the last answer."""
        if self.run is None:
            return self.sums.step(number, body, self.network.size, chosen)
        asked = body_digest(body, chosen)
        total = self.run.answered(number, asked)
        if total is None:
            total = self.sums.step(number, body, self.network.size, chosen)
            self.run.keep_answer(number, asked, total)
        return total

    def predictor(self) -> Predictor:
        """The current model, with the encoder of its features."""
        return Predictor(self.model, self.loss, self.tag, self.encoder)

    def save(self, path: str | Path) -> None:
        """Model and encoder in one file, for `maskedlark.training.load`."""
        self.predictor().save(path)

    def close(self) -> Mapping[str, ClosedReceipt]:
        """Close the session early: unused quarters are refunded."""
        return self.sums.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.sums.stop()


@dataclass(frozen=True, repr=False)
class Step:
    """One step of a run."""

    training: Training
    number: int

    def __repr__(self) -> str:
        return f"<Step {self.number} of {self.training!r}>"

    def backward(self, chosen: Ranges = ()) -> None:
        """Add the private gradient to `param.grad`. `chosen`: the batch, if the caller chooses batches."""
        gradient = self.training.gradient(self.number, chosen)
        networks.fill(self.training.network, self.training.model, gradient)
