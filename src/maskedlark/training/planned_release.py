"""What every plan of a single release says of its cost. Run by the ad server."""

from dataclasses import dataclass

from maskedlark.adserver.explanation import Explained


@dataclass(frozen=True)
class PlannedRelease:
    """A release that was not made."""

    explained: Explained
    """The charge, as helpers say; of what was answered none, and its own noise."""
    is_answered: bool
    """Whether the very same was answered before, so that asking costs nothing."""

    @property
    def epsilon(self) -> float | None:
        """What it costs: the same against the ad server and against it with all helpers but one."""
        return self.explained.charged_epsilon

    @property
    def fits(self) -> bool:
        """Whether helpers would answer: within the budget, and within what training may cost."""
        return self.explained.fits or self.is_answered
