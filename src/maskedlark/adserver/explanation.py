"""What a query would cost and how accurate it would be, before anything is spent. Run by the ad server."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from maskedlark.adserver.queries import QuerySpec
from maskedlark.dp import intervals
from maskedlark.dp.mechanisms import Kind
from maskedlark.release.messages import Explanation


@dataclass(frozen=True)
class ColumnNoise:
    """How far the noise of all helpers moves one number of a column."""

    name: str
    by: tuple[str, ...]
    error: float
    half_width: float
    is_drowned: bool
    """Whether the interval is wider than any answer over these records could be."""


@dataclass(frozen=True)
class Explained:
    """A query that was not asked."""

    kind: Kind
    noise: float
    helpers: int
    confidence: float
    k: int
    records: int
    columns: tuple[ColumnNoise, ...]
    charged_epsilon: float | None
    """None: unbounded."""
    left_epsilon: float | None
    """What the query would leave of a source's budget; below 0 it would be refused."""
    noise_that_fits: float | None

    @property
    def fits(self) -> bool:
        """Whether helpers would answer it."""
        return self.left_epsilon is not None and self.left_epsilon >= 0

    def __str__(self) -> str:
        noise = f"{self.kind} noise of {self.noise:g} from each of {self.helpers} helpers"
        lines = [f"Over {self.records:,} records (k = {self.k}), with {noise}:"]
        for column in self.columns:
            grouped = f" by {', '.join(column.by)}" if column.by else ""
            width = f"{column.half_width:,.0f} at {self.confidence * 100:g} %"
            lines.append(f"  {column.name}{grouped}: std. error {column.error:,.1f}, ± {width}")
        fits = "no noise fits" if self.noise_that_fits is None else f"noise {self.noise_that_fits:g} fits"
        left = (
            f" and leave {_shown(self.left_epsilon)}"
            if self.fits
            else f", which is more than is left; {fits}"
        )
        lines.append(f"It would cost ε = {_shown(self.charged_epsilon)}{left}. Nothing was spent.")
        if any(each.is_drowned for each in self.columns):
            lines.append(
                "Nothing will come of it: noise is larger than any answer. Take a larger ε, or more records."
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything, as one JSON object."""
        return json.dumps({**asdict(self), "fits": self.fits})


def explained(spec: QuerySpec, noise: float, confidence: float, said: Sequence[Explanation]) -> Explained:
    """The helpers' explanations as one: the highest cost counts."""
    costs = [(-math.inf if each.cost.left_epsilon is None else each.cost.left_epsilon) for each in said]
    dearest = said[costs.index(min(costs))]
    fitting = [each.noise_that_fits for each in said if each.noise_that_fits is not None]
    law = spec.mechanism.kind, noise
    helpers = len(spec.document.helpers)
    columns = [
        ColumnNoise(
            column.name,
            plan.by,
            intervals.standard_error(*law, column.sensitivity, helpers),
            width := intervals.half_width(*law, column.sensitivity, helpers, confidence),
            width > dearest.records * column.sensitivity.l1,
        )
        for plan in spec.question.schemas
        for column in plan.columns
    ]
    return Explained(
        *law,
        helpers,
        confidence,
        spec.document.k,
        dearest.records,
        tuple(columns),
        dearest.cost.charged_epsilon,
        dearest.cost.left_epsilon,
        max(fitting) if len(fitting) == len(said) else None,
    )


def _shown(epsilon: float | None) -> str:
    return "infinite" if epsilon is None else f"{epsilon:.4g}"
