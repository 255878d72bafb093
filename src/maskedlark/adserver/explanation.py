"""What a query would cost and how accurate it would be, before anything is spent. Run by the ad server."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.filesize import decimal

from maskedlark.adserver.queries import QuerySpec
from maskedlark.dp import intervals
from maskedlark.dp.mechanisms import Kind
from maskedlark.ledger.budget import BUDGET, TRAINING, TRAINING_COALITION
from maskedlark.ledger.wording import AT_FLOOR, USEFUL_EPSILON, at_most, both
from maskedlark.parameters.document import Document
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
class Exceeded:
    """The ceiling that a query would break, and what is left of it before the query."""

    of: str
    left_epsilon: float
    most_epsilon: float


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
    charged_coalition_epsilon: float | None = None
    left_training_epsilon: float | None = None
    """What it would leave of what training may cost against the ad server; None for queries of sums."""
    left_training_coalition_epsilon: float | None = None
    """The same against the ad server with all helpers but one."""
    shards: int = 1
    """In how many shards a helper has the records: the most of any."""
    stored_bytes: int = 0
    """What it reads of them."""
    exceeded: Exceeded | None = None
    """Of several ceilings, the one of which the least is left; None if it fits, or costs without bound."""
    is_at_floor: bool = False
    """Whether an ε was asked for that would allow no less noise than is declared."""

    @property
    def fits(self) -> bool:
        """Whether helpers would answer it."""
        training = self.left_training_epsilon, self.left_training_coalition_epsilon
        left = [self.left_epsilon, *(each for each in training if each is not None)]
        return all(each is not None and each >= 0 for each in left)

    @property
    def cost(self) -> str:
        """Both ε, and what would be left of what; or how much noise would fit."""
        charged = "infinite against everybody"
        if self.charged_epsilon is not None and self.charged_coalition_epsilon is not None:
            charged = both(self.charged_epsilon, self.charged_coalition_epsilon)
        if self.is_at_floor:
            charged += f" ({AT_FLOOR})"
        if not self.fits:
            return f"ε = {charged}, which is more than is left{self._what_fits}"
        training = ""
        if self.left_training_epsilon is not None and self.left_training_coalition_epsilon is not None:
            pair = both(self.left_training_epsilon, self.left_training_coalition_epsilon)
            training = f", and of what training may cost {pair}"
        return f"ε = {charged}; it would leave {self.left_epsilon:.4g} of {BUDGET}{training}"

    @property
    def _what_fits(self) -> str:
        """What is left of what, and the ε and the noise with which the same would be answered."""
        noise = None if self.noise_that_fits is None else f"noise {self.noise_that_fits:g}"
        if self.exceeded is None:
            return f"; {noise or 'no noise'} fits"
        over = self.exceeded
        left = f": {over.left_epsilon:.4g} of {over.most_epsilon:g} is left of {over.of}"
        if noise is None or over.left_epsilon < USEFUL_EPSILON:
            return f"{left}; nothing more of use fits"
        return f"{left}; epsilon = {at_most(over.left_epsilon)} fits, or {noise}"

    def __str__(self) -> str:
        noise = f"{self.kind} noise of {self.noise:g} from each of {self.helpers} helpers"
        lines = [f"Over {self.records:,} records (k = {self.k}), with {noise}:"]
        for column in self.columns:
            grouped = f" by {', '.join(column.by)}" if column.by else ""
            width = f"{column.half_width:,.0f} at {self.confidence * 100:g} %"
            lines.append(f"  {column.name}{grouped}: std. error {column.error:,.1f}, ± {width}")
        if self.shards > 1:
            lines.append(f"Each helper reads {decimal(self.stored_bytes)} in {self.shards} shards.")
        lines.append(f"It would cost {self.cost}. Nothing was spent.")
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
            schema.by,
            intervals.standard_error(*law, column.sensitivity, helpers),
            width := intervals.half_width(*law, column.sensitivity, helpers, confidence),
            width > dearest.records * column.sensitivity.l1,
        )
        for schema in spec.query.schemas
        for column in schema.columns
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
        dearest.cost.charged_coalition_epsilon,
        _least(each.cost.left_training_epsilon for each in said),
        _least(each.cost.left_training_coalition_epsilon for each in said),
        max(each.shards for each in said),
        max(each.stored_bytes for each in said),
        min(_exceeded(spec.document, said), key=lambda each: each.left_epsilon, default=None),
        spec.epsilon is not None and noise == spec.mechanism.noise_floor,
    )


def charged_before(said: Explanation) -> Explanation:
    """Of a request that was answered: shown again it costs nothing, and what is left stays."""
    cost = said.cost
    alone, together = cost.charged_epsilon, cost.charged_coalition_epsilon
    left = {
        "left_epsilon": (cost.left_epsilon, alone),
        "left_training_epsilon": (cost.left_training_epsilon, alone),
        "left_training_coalition_epsilon": (cost.left_training_coalition_epsilon, together),
    }
    free = {"charged_epsilon": 0.0, "charged_coalition_epsilon": 0.0}
    now = {
        name: None if after is None or paid is None else after + paid for name, (after, paid) in left.items()
    }
    return said.model_copy(update={"cost": cost.model_copy(update=free | now)})


def _exceeded(document: Document, said: Iterable[Explanation]) -> Iterator[Exceeded]:
    """Every ceiling that the query would break at some helper."""
    training = document.training
    for each in said:
        cost = each.cost
        alone, together = cost.charged_epsilon, cost.charged_coalition_epsilon
        ceilings = [(BUDGET, cost.left_epsilon, alone, document.budget.epsilon)]
        if training is not None:
            ceilings += [
                (TRAINING, cost.left_training_epsilon, alone, training.adserver.epsilon),
                (
                    TRAINING_COALITION,
                    cost.left_training_coalition_epsilon,
                    together,
                    training.coalition.epsilon,
                ),
            ]
        for of, after, charged, most in ceilings:
            if after is not None and charged is not None and after < 0:
                yield Exceeded(of, max(0.0, after + charged), most)


def _least(left: Iterable[float | None]) -> float | None:
    return min((each for each in left if each is not None), default=None)
