"""What a question would cost and how exact it would be, before a thing is spent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maskedlark.adserver.asking import Wish
from maskedlark.dp import intervals
from maskedlark.dp.mechanisms import Kind
from maskedlark.web.errors import StrangeAnswer

_Cost = Annotated[float, Field(ge=0)]


class _Message(BaseModel):
    """What is read of a helper's explanation; it may say more."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Spent(_Message):
    epsilon: _Cost | None
    delta: _Cost


class _Change(_Message):
    after: _Spent
    charged_epsilon: _Cost | None
    left_epsilon: float | None


class Explanation(_Message):
    """One helper's word on what a question would cost it."""

    records: int
    cost: _Change
    noise_that_fits: float | None


def decode(helper: str, data: bytes) -> Explanation:
    """A helper's explanation off the wire."""
    try:
        return Explanation.model_validate_json(data)
    except ValidationError:
        raise StrangeAnswer(f"{helper} explains in a way that is not known here") from None


@dataclass(frozen=True)
class ColumnNoise:
    """How far the noise of all helpers moves one number of a column."""

    name: str
    by: tuple[str, ...]
    error: float
    half_width: float


@dataclass(frozen=True)
class Explained:
    """A question that was not asked."""

    kind: Kind
    noise: float
    helpers: int
    confidence: float
    k: int
    records: int
    columns: tuple[ColumnNoise, ...]
    charged_epsilon: float | None
    """None is without bound."""
    left_epsilon: float | None
    """Of a source's budget, if it were asked; below 0 it would be refused."""
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
        lines.append(self._cost())
        return "\n".join(lines)

    def _cost(self) -> str:
        charged, left = _shown(self.charged_epsilon), _shown(self.left_epsilon)
        if self.fits:
            return f"It would cost ε = {charged} and leave {left}. Nothing was spent."
        fits = "no noise fits" if self.noise_that_fits is None else f"noise {self.noise_that_fits:g} fits"
        return f"It would cost ε = {charged}, which is more than is left; {fits}. Nothing was spent."

    def to_json(self) -> str:
        """All of it, as one JSON object."""
        return json.dumps({**vars(self), "columns": [vars(each) for each in self.columns], "fits": self.fits})


def explained(wish: Wish, noise: float, confidence: float, said: Mapping[str, Explanation]) -> Explained:
    """What the helpers' words add up to: the dearest counts. Run by the ad server."""
    dearest = min(said.values(), key=lambda each: _left(each.cost.left_epsilon))
    fitting = [each.noise_that_fits for each in said.values()]
    known = [each for each in fitting if each is not None]
    return Explained(
        wish.mechanism.kind,
        noise,
        len(wish.document.helpers),
        confidence,
        wish.document.k,
        dearest.records,
        tuple(_columns(wish, noise, confidence)),
        dearest.cost.charged_epsilon,
        dearest.cost.left_epsilon,
        max(known) if len(known) == len(fitting) else None,
    )


def _columns(wish: Wish, noise: float, confidence: float) -> Sequence[ColumnNoise]:
    kind, helpers = wish.mechanism.kind, len(wish.document.helpers)
    return [
        ColumnNoise(
            column.name,
            plan.by,
            intervals.standard_error(kind, noise, column.sensitivity, helpers),
            intervals.half_width(kind, noise, column.sensitivity, helpers, confidence),
        )
        for plan in wish.question().plans
        for column in plan.columns
    ]


def _left(epsilon: float | None) -> float:
    return float("-inf") if epsilon is None else epsilon


def _shown(epsilon: float | None) -> str:
    return "infinite" if epsilon is None else f"{epsilon:.4g}"
