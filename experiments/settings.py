"""What is the same for all points of a series: network, batch, learning rate and epochs.

The authors name none of the last three. Without noise their points follow from learning rate times steps
alone, so that was chosen once, on the point without noise (MNIST bound 10, WBCD bound 48), and is the same
for all others: about 1,200 for MNIST, 0.1 for WBCD on raw features. How it is split was chosen for speed, as
far as noise on the sum of a batch leaves a choice.
"""

from dataclasses import dataclass

from experiments.data import Split, mnist, wbcd
from experiments.jobs import Job
from experiments.memory import Run
from experiments.size import Size
from maskedlark.exact.clip import Clip

_LOOK = 10_000
"""Rows of a quick look."""


@dataclass(frozen=True)
class Setting:
    """One training."""

    dataset: str
    sizes: tuple[int, ...]
    rows: int
    batch: int
    rate: float
    epochs: int
    seconds: float
    """About how long it takes."""
    fraction: int = 20
    """Fractional bits of a clipped error: what leaves a sum and its noise room in the field."""

    def settings(self, size: Size) -> dict[str, int | float]:
        """As a job has them. A quick look has fewer rows, and half of the steps."""
        fewer = size is Size.QUICK and self.rows > _LOOK
        return {
            "rows": _LOOK if fewer else self.rows,
            "batch": self.batch,
            "learning_rate": self.rate,
            "epochs": self.epochs * self.rows // _LOOK // 2 if fewer else self.epochs,
        }

    def __str__(self) -> str:
        layers = "-".join(map(str, self.sizes))
        return (
            f"{layers}, ReLU, plain SGD, batch {self.batch}, learning rate {self.rate:g}, {self.epochs} "
            f"epochs of {self.rows:,} rows"
        )


MNIST = Setting("MNIST", (784, 500, 10), mnist.TRAINED, 250, 1.5, 4, 20.0)
MNIST_LOCAL = Setting("MNIST", (784, 500, 10), mnist.TRAINED, 250, 0.4, 15, 55.0)
"""The same learning rate times steps, in shorter steps: with noise on features longer ones diverge."""
MNIST_SLOW = Setting("MNIST", (784, 500, 10), mnist.TRAINED, 64, 0.1, 15, 40.0)
"""And in steps so short that noise without bounds is borne."""
WBCD = Setting("WBCD", (30, 50, 50, 1), wbcd.TRAINED, 100, 0.5, 40, 1.0, fraction=14)
"""On features as bytes: here the settings are our own."""
WBCD_RAW = Setting("WBCD", (30, 50, 50, 1), wbcd.TRAINED, 100, 1e-4, 200, 1.0)
WBCD_LOCAL = Setting("WBCD", (30, 50, 50, 1), wbcd.TRAINED, 100, 1.0, 20, 0.5)
"""On features in standard deviations."""
NETWORKS = {each.dataset: each.sizes for each in (MNIST, WBCD)}
_LOADED = {"MNIST": mnist.load, "WBCD": wbcd.load}


def data(job: Job) -> Split:
    """The bytes that a job trains with."""
    return _LOADED[job.dataset]().first(int(job.settings["rows"]))


def run(job: Job, bound: float, fraction: int = 20) -> Run:
    """A job's training, without noise yet."""
    rows, batch = int(job.settings["rows"]), int(job.settings["batch"])
    return Run(
        NETWORKS[job.dataset],
        Clip(bound, fraction=fraction),
        batch=batch,
        steps=int(job.settings["epochs"]) * -(-rows // batch),
        rate=float(job.settings["learning_rate"]),
        seed=job.seed,
    )
