"""Local policy: what a browser or a helper accepts, whatever an ad server declares.

It keeps an ad server from naming its own sock-puppets as helpers, or declaring an ε of a million.
"""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from maskedlark.errors import MaskedLarkError
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Budget
from maskedlark.wire.message import Hex32, Settings


class OutsidePolicy(MaskedLarkError):
    """A document that this party's own policy does not allow, whoever signed it."""


class UntrustedHelper(OutsidePolicy):
    """The document names a helper identity that this party does not trust."""


class TooFewHelpers(OutsidePolicy):
    """The document names fewer helpers than this party wants."""


class KTooSmall(OutsidePolicy):
    """The document's k is below this party's minimum."""


class CandidatesLeak(OutsidePolicy):
    """A model shows `pair` or a sample of candidates, from which labels can be guessed."""


class NotChecked(OutsidePolicy):
    """Helpers check no report under the document: a single one may add any number to a sum."""


class TooFewFakes(OutsidePolicy):
    """The document's rate of fakes is below this party's minimum."""


class BudgetOverCeiling(OutsidePolicy):
    """A source could cost more ε or δ under the document than this party allows."""


class Policy(Settings):
    """A party's own limits. Held by every browser and every helper."""

    # Identities, not names: a name can be taken.
    trusted_helpers: tuple[Hex32, ...] = Field(
        description="identities of all helpers that a document may name, its own too: "
        'trusted_helpers = ["64 hexadecimal digits"]'
    )
    max_budget: Budget = Field(
        description="the most that a source may cost against the ad server: "
        "max_budget = {epsilon = 8.0, delta = 1e-6}"
    )
    max_coalition: Budget = Field(
        description="the most that it may cost against the ad server with all helpers but one, all purposes "
        "together (budget.epsilon of a document that aggregates, plus training.coalition.epsilon of one that "
        "trains, plus the ε of randomised labels): max_coalition = {epsilon = 40.0, delta = 1e-6}"
    )
    min_k: Annotated[int, Field(ge=1)] = Field(
        default=20, description="the least k that a document may declare: min_k = 20"
    )
    min_helpers: Annotated[int, Field(ge=2)] = Field(
        default=2, description="how many helpers a document must name: min_helpers = 2"
    )
    # With skewed labels, the candidates of `pair` or a sample give labels away.
    whole_label_space: bool = Field(
        default=False,
        description="refuse models that show only some of their labels: whole_label_space = true",
    )
    checked_reports: bool = Field(
        default=False,
        description="refuse documents whose helpers do not check that reports are valid: "
        "checked_reports = true",
    )
    min_fake_rate: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="the least fake_rate of a document: min_fake_rate = 0.05"
    )

    def check(self, document: Document) -> None:
        """Return if the document is acceptable; raise the first violation."""
        for helper in document.helpers:
            if helper.identity not in self.trusted_helpers:
                raise UntrustedHelper(
                    f"{document.origin} names {helper.name} as a helper, which is not trusted here"
                )
        if len(document.helpers) < self.min_helpers:
            raise TooFewHelpers(
                f"{document.origin} names {len(document.helpers)} helpers; {self.min_helpers} is the least"
            )
        if document.k < self.min_k:
            raise KTooSmall(f"{document.origin} declares k = {document.k}; {self.min_k} is the least here")
        partial = [model.tag for model in document.models if model.candidates != "all"]
        if self.whole_label_space and partial:
            raise CandidatesLeak(f"{document.origin} shows less than the whole label space of {partial[0]}")
        if self.checked_reports and not document.checked:
            raise NotChecked(f"{document.origin} declares no checks: a report may add any number to a sum")
        if document.fake_rate < self.min_fake_rate:
            raise TooFewFakes(
                f"{document.origin} declares fake_rate = {document.fake_rate:g}; "
                f"{self.min_fake_rate:g} is the least here"
            )
        _check(document.origin, "the ad server", against_adserver(document), self.max_budget)
        _check(document.origin, "a coalition", against_coalition(document), self.max_coalition)


class Bound(NamedTuple):
    """The most that a source may cost: ε by purpose, and δ."""

    parts: Mapping[str, float]
    delta: float

    def __str__(self) -> str:
        parts = [f"{epsilon:g} of it {what}" for what, epsilon in self.parts.items()]
        return ", ".join(parts) if len(parts) > 1 else "all of it " + next(iter(self.parts))

    @property
    def epsilon(self) -> float:
        """All parts together."""
        return math.fsum(self.parts.values())


def against_adserver(document: Document) -> Bound:
    """What a source may cost against the ad server alone: training is within the budget. Anyone."""
    return Bound(
        {"for answers with noise": document.budget.epsilon, **_local(document)}, document.budget.delta
    )


def against_coalition(document: Document) -> Bound:
    """What it may cost against the ad server with all helpers but one, all purposes together. Anyone.

    Training has a ceiling of its own. Aggregation costs a coalition what it costs the ad server, and may use
    the whole budget: training over batches that the ad server does not know may leave nearly all of it.
    """
    purposes = {"to aggregate": document.budget} if document.values else {}
    if document.models and document.training:
        purposes["to train"] = document.training.coalition
    # δ does not add up: the budget's is divided among purposes (`Document.delta`), against any adversary.
    delta = max(budget.delta for budget in purposes.values())
    bound = Bound({what: budget.epsilon for what, budget in purposes.items()} | _local(document), delta)
    if document.has_sessions:
        return bound
    # Without sessions no batch is unknown to anybody: what holds against the ad server holds for all.
    return min(bound, against_adserver(document), key=lambda each: each.epsilon)


def _local(document: Document) -> dict[str, float]:
    """What local noise alone reveals, on top: no budget is charged for it."""
    local = randomised.epsilon(document)
    return {"for sums without noise over randomised records": local} if local else {}


def _check(origin: str, whom: str, bound: Bound, most: Budget) -> None:
    if bound.epsilon > most.epsilon or bound.delta > most.delta:
        raise BudgetOverCeiling(
            f"under {origin}'s document a source may cost ({bound.epsilon:g}, {bound.delta:g}) against "
            f"{whom}, {bound}; the ceiling here is ({most.epsilon:g}, {most.delta:g})"
        )
