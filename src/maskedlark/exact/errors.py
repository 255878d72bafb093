"""Errors of the exact engine, raised before it computes anything."""

from maskedlark.errors import FieldOverflow, MaskedLarkError, NotDeclared


class ModelDoesNotFit(NotDeclared):
    """A model with a node that the engine cannot run exactly. Says which, and what to change."""

    def __init__(self, node: str, change: str) -> None:
        super().__init__(f"{node}: {change}")
        self.node = node


class WeightsDoNotFit(NotDeclared):
    """Quantised weights that are not those of the network, or are outside the range of their type."""


class Saturated(UserWarning):
    """Numbers of a hidden layer are clamped: at these weights, 8 bits hold them at no scale."""


class RecordsDoNotFit(NotDeclared):
    """Features, candidates, masks, report ids or cells whose form is not that of the network."""


class TooWide(FieldOverflow):
    """A layer whose sums could exceed what float64 holds exactly."""


class OutOfField(FieldOverflow):
    """A sum of gradients that, with its noise, could leave the field."""


class InexactDevice(MaskedLarkError):
    """A device whose products or roundings differ from the known answer."""
