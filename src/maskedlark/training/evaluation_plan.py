"""What an evaluation would cost and how far off it would be, before anything is spent.

Run by the ad server.
"""

from dataclasses import asdict, dataclass
from typing import Any

from maskedlark.training.metrics import Binary, Classes, LabelMeasures, Measure, Values
from maskedlark.training.planned_release import PlannedRelease

_NAMES = ("auc", "log_loss", "accuracy", "squared_error", "bias")
_TELLS_NOTHING = 0.5
"""An AUC or accuracy of 0.75 that may be off by this is anything from a coin's to a perfect one."""
_PARTS = {"all": "all", "held_out": "the held-out part of", "training": "the part to train of"}


@dataclass(frozen=True)
class EvaluationPlan(PlannedRelease):
    """An evaluation that was not made."""

    part: str
    buckets: tuple[int, ...]
    """Of every label."""
    deviations: tuple[float, ...]
    """Of all helpers' noise in one number of every label."""
    expected: tuple[LabelMeasures | None, ...]
    """The measures, if labels are as likely as the model says; None without rows of the caller's."""
    rows: int | None
    records: int
    real_records: float

    @property
    def is_hopeless(self) -> bool:
        """Whether noise would hide any answer to every label's question."""
        asked = zip(self.expected, self.deviations, strict=True)
        return all(self._is_drowned(own, deviation) for own, deviation in asked)

    def _is_drowned(self, own: LabelMeasures | None, deviation: float) -> bool:
        bars = [] if own is None else [each for name, each in _bars(own) if name in ("AUC", "accuracy")]
        # Without rows, or of numbers: one bucket's count is off by more than there are records.
        return bars[0].half_width >= _TELLS_NOTHING if bars else 2 * deviation > self.real_records

    def figures(self) -> dict[str, Any]:
        """The plan's figures, for programs."""
        return {
            "epsilon": self.epsilon,
            "coalition_epsilon": self.explained.charged_coalition_epsilon,
            "left_epsilon": self.explained.left_epsilon,
            "left_training_epsilon": self.explained.left_training_epsilon,
            "left_training_coalition_epsilon": self.explained.left_training_coalition_epsilon,
            "fits": self.fits,
            "hopeless": self.is_hopeless,
            "noise": self.explained.noise,
            "part": self.part,
            "buckets": list(self.buckets),
            "deviations": list(self.deviations),
            "expected": [None if each is None else measures(each) for each in self.expected],
            "rows": self.rows,
            "records": self.records,
            "real_records": self.real_records,
            "is_answered": self.is_answered,
        }

    def __str__(self) -> str:
        paid = self.explained
        lines = [
            f"an evaluation over {_PARTS[self.part]} {self.records:,} records, of which "
            f"{self.real_records:,.0f} are expected to be real",
            *([] if self.is_answered else [paid.cost]),
        ]
        for place, (own, count, deviation) in enumerate(
            zip(self.expected, self.buckets, self.deviations, strict=True)
        ):
            of = f"label {place}: " if len(self.expected) > 1 else ""
            noise = (
                f"{of}{count} buckets; {paid.kind} noise of all helpers puts a count off by {deviation:.3g}"
            )
            errors = "no error bars beforehand: give the ad server's own rows (table)"
            if own is not None:
                # Of a model that is wrong about itself, log-loss above all is further off.
                right = "predictions" if isinstance(own, Values) else "probabilities"
                bars = ", ".join(f"{name} ± {each.half_width:.2g}" for name, each in _bars(own))
                errors = f"if its {right} are about right, expect {bars}"
            lines.append(f"{noise}; {errors}")
        if self.is_hopeless:
            lines.append("Nothing will come of it: noise hides any answer. Take a larger ε, or more records")
        if self.is_answered:
            lines.append("The same was asked and answered before: it is shown again, and costs nothing")
        return "\n".join(lines)


def measures(label: LabelMeasures) -> dict[str, Any]:
    """The measures of a label, for programs."""
    measured = {name: getattr(label, name, None) for name in _NAMES}
    return {name: asdict(each) for name, each in measured.items() if isinstance(each, Measure)}


def _bars(label: LabelMeasures) -> list[tuple[str, Measure]]:
    match label:
        case Binary():
            return [("AUC", label.auc), ("log-loss", label.log_loss), ("accuracy", label.accuracy)]
        case Classes():
            return [("accuracy", label.accuracy)]
        case Values():
            return [("squared error", label.squared_error), ("bias", label.bias)]
