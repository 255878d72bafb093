"""Local policy: what a browser or a helper accepts, whatever an ad server declares.

Who guards the guards: an ad server cannot name its own sock-puppets as helpers, or declare a million as ε.
"""

from typing import Annotated

from pydantic import Field

from maskedlark.errors import BudgetOverCeiling, CandidatesLeak, KTooSmall, TooFewHelpers, UntrustedHelper
from maskedlark.privacy import randomised
from maskedlark.privacy.document import Document
from maskedlark.privacy.settings import Budget, Hex32, Settings


class Policy(Settings):
    """A party's own ceilings. Held by every browser and every helper."""

    trusted_helpers: tuple[Hex32, ...]
    """Identities, not names: a name can be taken."""
    most: Budget
    """The most that a source may cost against the ad server."""
    most_coalition: Budget
    """The most that a source may cost against the ad server with all helpers but one."""
    least_k: Annotated[int, Field(ge=1)] = 20
    least_helpers: Annotated[int, Field(ge=2)] = 2
    whole_label_space: bool = False
    """Refuse models that show `pair` or a sample: with skewed labels their candidates give labels away."""

    def check(self, document: Document) -> None:
        """Return if the document is acceptable; raise what it breaks first."""
        for helper in document.helpers:
            if helper.identity not in self.trusted_helpers:
                raise UntrustedHelper(
                    f"{document.origin} names {helper.name} as a helper, which is not trusted here"
                )
        if len(document.helpers) < self.least_helpers:
            raise TooFewHelpers(
                f"{document.origin} names {len(document.helpers)} helpers; {self.least_helpers} is the least"
            )
        if document.k < self.least_k:
            raise KTooSmall(f"{document.origin} declares k = {document.k}; {self.least_k} is the least here")
        partial = [model.tag for model in document.models if model.candidates != "all"]
        if self.whole_label_space and partial:
            raise CandidatesLeak(f"{document.origin} shows less than the whole label space of {partial[0]}")
        self._check_budgets(document)

    def _check_budgets(self, document: Document) -> None:
        """Every ceiling, with what local noise alone lets through on top: no budget is charged for that."""
        local = randomised.epsilon(document)
        _check_budget(document.origin, "a source", document.budget, local, self.most)
        if document.training is None:
            return
        ceilings, against = document.training, "training, against a coalition,"
        _check_budget(document.origin, "training", ceilings.adserver, local, self.most)
        _check_budget(document.origin, against, ceilings.coalition, local, self.most_coalition)


def _check_budget(origin: str, what: str, declared: Budget, local: float, most: Budget) -> None:
    if declared.epsilon + local > most.epsilon or declared.delta > most.delta:
        added = f", {local:g} of it for sums without noise over randomised records" if local else ""
        raise BudgetOverCeiling(
            f"under {origin}'s document {what} may cost ({declared.epsilon + local:g}, {declared.delta:g})"
            f"{added}; the ceiling here is ({most.epsilon:g}, {most.delta:g})"
        )
