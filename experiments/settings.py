"""What is the same for all points of a series: network, batch, learning rate and epochs.

The authors name none of the last three. Without noise their points follow from learning rate times steps
alone, so that was chosen once, on the points without noise (MNIST bound 10, WBCD bound 48): about 1,200 for
MNIST, 0.1 for WBCD on raw features; for other features of WBCD it is our own. How it is split was fitted to
their points with noise: on the sum of a batch, by each of two helpers, a learning rate of 2.5e-5 times the
batch size squared fits all of MNIST's (six bounds, 17 ε), and among such batches 250 is fast and stable; for
WBCD 100 fits, 50 has too much noise and 500 too little. Scale and units of noise on features were fitted
too.
"""

from dataclasses import dataclass

from experiments.data import Split, mnist, wbcd
from experiments.jobs import Job, Value
from experiments.memory import SAMPLE, Run
from experiments.rows import Row
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

    def settings(self, size: Size) -> dict[str, Value]:
        """As a job has them. A quick look has fewer rows, and a quarter of the steps."""
        fewer = size is Size.QUICK and self.rows > _LOOK
        return {
            "network": "-".join(map(str, self.sizes)),
            "rows": _LOOK if fewer else self.rows,
            "batch": self.batch,
            "learning_rate": self.rate,
            "epochs": self.epochs * self.rows // _LOOK // 4 if fewer else self.epochs,
            "fraction": self.fraction,
            "sample": SAMPLE,
        }

    def weight(self, size: Size) -> float:
        """About how many seconds it takes at that size."""
        given = self.settings(size)
        return self.seconds * float(given["epochs"]) * float(given["rows"]) / (self.epochs * self.rows)


def told(row: Row) -> str:
    """How a row was trained, from its own settings."""
    return (
        f"{row.more['network']}, ReLU, plain SGD, batch {row.more['batch']}, learning rate "
        f"{row.number('learning_rate'):g}, {row.more['epochs']} epochs of {row.number('rows'):,.0f} rows"
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


def run(job: Job) -> Run:
    """A job's training, without noise yet. All that decides it is in the job's settings."""
    given = job.settings
    rows, batch = int(given["rows"]), int(given["batch"])
    return Run(
        tuple(map(int, str(given["network"]).split("-"))),
        Clip(float(given["bound"]), fraction=int(given["fraction"])),
        batch=batch,
        steps=int(given["epochs"]) * -(-rows // batch),
        rate=float(given["learning_rate"]),
        seed=job.seed,
    )
