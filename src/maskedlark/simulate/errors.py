"""Errors of simulations."""

from maskedlark.errors import MaskedLarkError, NotDeclared


class BadSimulation(NotDeclared):
    """Columns or settings from which no simulation can be made. Says what to change."""


class OtherSimulation(MaskedLarkError):
    """The folder holds another simulation, or another process runs the one in it."""
