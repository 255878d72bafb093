"""Figures of a budget in words, alike in plans, tables and errors."""

from decimal import ROUND_DOWN, Decimal

USEFUL_EPSILON = 0.001
"""At less, noise hides all there is, and nobody is advised to ask for it."""
AT_FLOOR = "noise is at its declared floor: no larger ε is possible"
_DIGITS = 3


def both(adserver: float, coalition: float) -> str:
    """The ε against the ad server alone, and beside it the one against it with all helpers but one."""
    alone, together = f"{adserver:.4g}", f"{coalition:.4g}"
    if alone == together:
        return f"{alone} against the ad server and against it with all helpers but one"
    return f"{alone} against the ad server alone, {together} against it with all helpers but one"


def at_most(figure: float) -> str:
    """Three digits, rounded down: whoever takes it at its word stays within it."""
    exact = Decimal(figure)
    last = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    return f"{float(exact.quantize(last, ROUND_DOWN)) if exact else 0.0:g}"
