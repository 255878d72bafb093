"""What a query would cost and how exact its answer would be. Nothing here looks at a record."""

import math

from maskedlark.dp import intervals
from maskedlark.functions.function import Column
from maskedlark.ledger.budget import TRAINING, TRAINING_COALITION, Spent
from maskedlark.release.messages import (
    ExplainedColumn,
    ExplainedCost,
    ExplainedSpending,
    ExplainedTable,
    Explanation,
)
from maskedlark.release.release import CheckedQuery, PricedQuery

CONFIDENCE = 0.95


def of(explained: PricedQuery) -> Explanation:
    """For the ad server, before it really asks. Run by a helper."""
    checked, cost, document = explained.query, explained.cost, explained.query.scope.document
    is_training = checked.query.tag is not None
    left = {each.of: _finite(each.left) for each in cost.limits if is_training}
    return Explanation(
        function=checked.request.function,
        records=checked.records,
        shards=sum(map(len, checked.scope.shards(checked.query.tag))),
        stored_bytes=sum(each.stored_bytes(checked.query.tag) for each in checked.scope.datasets),
        k=document.k,
        helpers=len(document.helpers),
        mechanism=checked.scope.mechanism.kind,
        noise=checked.request.noise,
        cost=ExplainedCost(
            before=_spent(cost.before),
            after=_spent(cost.after),
            charged_epsilon=_finite(cost.charged.adserver),
            charged_coalition_epsilon=_finite(cost.charged.coalition),
            charged_delta=max(0.0, cost.after.delta - cost.before.delta),
            left_epsilon=_finite(cost.left),
            left_training_epsilon=left.get(TRAINING),
            left_training_coalition_epsilon=left.get(TRAINING_COALITION),
            left_delta=document.budget.delta - cost.after.delta,
        ),
        noise_that_fits=explained.noise_that_fits,
        confidence=CONFIDENCE,
        tables=tuple(
            ExplainedTable(by=schema.by, columns=tuple(_column(checked, column) for column in schema.columns))
            for schema in checked.query.schemas
        ),
    )


def _spent(spent: Spent) -> ExplainedSpending:
    return ExplainedSpending(
        epsilon=_finite(spent.epsilon), coalition_epsilon=_finite(spent.coalition), delta=spent.delta
    )


def _column(checked: CheckedQuery, column: Column) -> ExplainedColumn:
    """How far the noise of all helpers together moves one number of a column."""
    scope = checked.scope
    law = scope.mechanism.kind, checked.request.noise, column.sensitivity, len(scope.document.helpers)
    return ExplainedColumn(
        name=column.name,
        width=column.width,
        standard_error=intervals.standard_error(*law),
        half_width=intervals.half_width(*law, CONFIDENCE),
    )


def _finite(number: float) -> float | None:
    """JSON has no infinity: an unbounded cost is null."""
    return number if math.isfinite(number) else None
