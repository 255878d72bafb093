"""What a fit would cost and how good it would be, before anything is spent. Run by the ad server."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maskedlark.fitting import mismatch
from maskedlark.fitting.moments_request import FRACTION, MAX_COEFFICIENTS, MomentsRequest
from maskedlark.training.plan import HOPELESS
from maskedlark.training.planned_release import PlannedRelease

_NOTHING = 0.02
"""Of the assumed truth's variance: an AUC of hardly more than 0.5."""

ANSWERED = "The same was asked and answered before: fitting it again costs nothing"


@dataclass(frozen=True)
class FitPlan(PlannedRelease):
    """A fit that was not made."""

    delta: float
    map: str
    width: int
    """How many numbers are released per output."""
    clip: float
    fraction: int
    """The bits of a clip factor."""
    share: float
    """Of the assumed truth's variance, how much the release is expected to explain."""
    others: tuple[tuple[str, float, float], ...]
    """The maps and clips that were not taken, with their shares."""
    auc: tuple[float, float] | None
    """The expected AUC and its deviation, of binary labels."""
    assumed: str
    coefficient_error: float
    """The expected standard error of a named column's coefficient: the median of all."""
    rows: int
    records: int
    real_records: float
    has_intervals: bool = True
    """Whether coefficients will have errors: not those of too many."""

    @property
    def noise(self) -> float:
        """The multiplier, in units of what a replaced label moves."""
        return self.explained.noise

    @property
    def is_hopeless(self) -> bool:
        """Whether the release is expected to explain next to nothing."""
        return self.share < _NOTHING

    def figures(self) -> dict[str, Any]:
        """The plan's figures, for programs."""
        return {
            "epsilon": self.epsilon,
            "coalition_epsilon": self.explained.charged_coalition_epsilon,
            "delta": self.delta,
            "left_epsilon": self.explained.left_epsilon,
            "left_training_epsilon": self.explained.left_training_epsilon,
            "left_training_coalition_epsilon": self.explained.left_training_coalition_epsilon,
            "fits": self.fits,
            "hopeless": self.is_hopeless,
            "noise": self.noise,
            "noise_that_fits": self.explained.noise_that_fits,
            "map": self.map,
            "width": self.width,
            "clip": self.clip,
            "fraction": self.fraction,
            "explained": self.share,
            "others": [{"map": map_, "clip": clip, "explained": share} for map_, clip, share in self.others],
            "auc": self.auc and self.auc[0],
            "auc_deviation": self.auc and self.auc[1],
            "coefficient_error": self.coefficient_error,
            "rows": self.rows,
            "records": self.records,
            "real_records": self.real_records,
            "rows_differ": mismatch.differ(self.rows, self.real_records),
            "has_intervals": self.has_intervals,
            "is_answered": self.is_answered,
        }

    def __str__(self) -> str:
        paid = self.explained
        best: dict[str, float] = {}
        for map_, _, share in self.others:
            best[map_] = max(share, best.get(map_, 0.0))
        best.pop(self.map, None)
        instead = ", ".join(f"{name} {share:.0%}" for name, share in best.items())
        if round(max(best.values(), default=0.0), 2) > round(self.share, 2):
            instead += "; auto chooses as if nothing had been spent, so that the same fit asks the same"
        lines = [
            f"one release of {self.width} numbers per output over {self.records:,} records, of which "
            f"{self.real_records:,.0f} are expected to be real; {self.rows:,} rows here",
            *([] if self.is_answered else [f"{paid.cost}; δ = {self.delta:.3g}"]),
            f"{paid.kind} noise of {self.noise:g} times the sensitivity from each of {paid.helpers} helpers",
            f"map: {self.map}, rows clipped to {self.clip:g}; explains {self.share:.0%} of {self.assumed}"
            + (f" (others: {instead})" if instead else ""),
        ]
        if self.fraction < FRACTION:
            lines.append(
                f"clip factors have {self.fraction} bits, not {FRACTION}, so that sums fit the field: rows "
                f"are shortened by up to 1/{2**self.fraction} more, which the fit takes into account"
            )
        if self.auc is not None:
            lines.append(f"AUC {self.auc[0]:.3f} ± {self.auc[1]:.3f}, simulated under that assumption")
        lines.append(f"standard error of a coefficient {self.coefficient_error:.3g}. Nothing was spent")
        if not self.has_intervals:
            lines.append(f"Over {MAX_COEFFICIENTS:,} coefficients: they will have no intervals")
        if mismatch.differ(self.rows, self.real_records):
            lines.append(mismatch.said(self.rows, self.records, self.real_records))
        if self.is_hopeless:
            lines.append(HOPELESS)
        if self.is_answered:
            lines.append(ANSWERED)
        return "\n".join(lines)


def plan(request: MomentsRequest) -> FitPlan:
    """Price the request at the helpers, and simulate its outcome."""
    settings, chosen, assumed = request.settings, request.chosen, request.assumed
    # The choice is by a first release's noise; what was spent since, or answered, makes this another.
    priced = settings.client.price(*request.asked, reuse=True)
    more = priced.noise / request.noise
    experiment, map_ = chosen.experiment.noisier(more), chosen.map
    named, _ = map_.named(experiment.error_root, np.zeros(len(experiment.error_root)))
    assumption = f"a truth of deviation {assumed.spread:g}"
    if request.family.is_class:
        assumption += f" (logits) at a rate of {assumed.rate:.2g}"
    return FitPlan(
        priced,
        request.is_answered(),
        request.delta,
        map_.kind,
        request.phi.width,
        chosen.clip,
        request.phi.fraction,
        experiment.explained,
        tuple(
            (each.map.kind, each.clip, each.experiment.noisier(more).explained)
            for each in request.candidates
            if each is not chosen
        ),
        experiment.auc(settings.seed) if request.family.is_binary else None,
        assumption,
        float(np.median(np.sqrt((named**2).sum(axis=0)))),
        len(request.rows),
        request.records,
        request.real_records,
        request.has_intervals,
    )
