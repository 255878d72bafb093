"""Releases -> (ε, δ), composed by `dp-accounting`. Neighbours differ in one record's secret, replaced.

Laplace columns: the lesser of the sum of their pure ε, and what Rényi divergences give at δ. The noise is
rounded Laplace, so the continuous mechanism's divergence bounds it. That is convex in ε and 0 at 0, so it is
largest when a record moves one coordinate by all of the sensitivity.

Gaussian columns: independent ones are exactly one of the multiplier 1 / √Σ(count / noise²), whose ε has a
closed form (Balle and Wang, 2018) that takes milliseconds. `PLDAccountant` finds the same to eight digits,
but takes a hundred times as long, and all memory for small multipliers; a test compares the two.

Both: the pure ε of one and the (ε, δ) of the other add up. That holds for a mixture fixed beforehand. A
caller who looks at Gaussian answers, and spends the rest of ε elsewhere when they were unlikely, exceeds δ.
So where anything else shares the ceiling, Rényi divergences add up, order by order: for each order α,
exp((α - 1)(loss - divergences)) is a supermartingale, wherever the caller stops (docs/ACCOUNTING.md).
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from maskedlark.dp.mechanisms import MAX_NOISE, MIN_NOISE, Kind, check_noise
from maskedlark.errors import NotDeclared
from maskedlark.parameters.settings import MAX_NUMBER
from maskedlark.wire.message import STRICT

DIGITS = 4
"""The number of significant digits of the multipliers that `noise_for` finds."""
_TENFOLD: int = 9 * 10 ** (DIGITS - 1)
"""How many numbers with that many digits lie between one power of ten and the next."""
MAX_INDEX: int = round(math.log10(MAX_NOISE / MIN_NOISE)) * _TENFOLD
_SLACK = 1e-9
_SEARCHED = 2e-12
"""Error of the search for ε in the closed form, relative and absolute: added, so that ε is never too low."""
_CLOSED = 1e-3, 1e3
"""Between these multipliers the closed form keeps its precision."""
_RDP_NOISE = 1e4
"""Above this, rounding swamps Rényi divergences: less noise is assumed instead, which costs more."""

_ORDERS = tuple(1 + 2 ** (i / 2) for i in range(-4, 18))
"""Orders of Rényi divergences. A caller may choose noise by earlier answers, and so which order is best in
the end: each order's bound holds except with its part of δ, so the best one's holds except with δ."""

_Merged = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Charge:
    """A number of columns, each with noise of this kind and multiplier. Receipts hold it as it is."""

    __pydantic_config__: ClassVar = STRICT

    mechanism: Kind
    noise: float
    columns: int

    def __post_init__(self) -> None:
        check_noise(self.noise)
        if self.mechanism not in ("laplace", "gaussian") or not 0 <= self.columns <= MAX_NUMBER:
            raise NotDeclared("a charge is for 0 columns or more of 'laplace' or 'gaussian' noise")


def epsilon(charges: Iterable[Charge], delta: float, *, mixed: bool = False) -> float:
    """The ε of all charges together at this δ; 0 if there are none. Run by helpers and their auditors.

    `mixed`: whether other charges share the ceiling, here or elsewhere, chosen by earlier answers.
    """
    if not 0 <= delta < 1:
        raise NotDeclared("a delta is from 0 to less than 1")
    merged: dict[Kind, Counter[float]] = {"laplace": Counter(), "gaussian": Counter()}
    for charge in charges:
        merged[charge.mechanism][charge.noise] += charge.columns
    laplace, gaussian = (tuple(sorted((+merged[kind]).items())) for kind in ("laplace", "gaussian"))
    if not gaussian:
        return _laplace(laplace, delta)
    if delta == 0:
        raise NotDeclared("Gaussian noise has no epsilon at delta 0: declare a delta, or use Laplace noise")
    if mixed:
        return _renyi(laplace, gaussian, delta)
    noise = 1 / math.sqrt(math.fsum(count / noise / noise for noise, count in gaussian))
    return _laplace(laplace, 0.0) + _gaussian(noise, delta)


_composed = epsilon
"""Alias for use where a parameter is called `epsilon`."""


def noise_for(
    kind: Kind,
    count: int,
    epsilon: float,
    delta: float,
    before: Iterable[Charge] = (),
    *,
    mixed: bool = False,
) -> float:
    """The least four-digit multiplier with which `count` more columns stay within ε at δ. Run by planners."""
    charged = tuple(before)

    def fits(index: int) -> bool:
        return _composed((*charged, Charge(kind, multiplier(index), count)), delta, mixed=mixed) <= epsilon

    if not fits(MAX_INDEX):
        raise NotDeclared("no noise fits what is left of the budget: ask fewer columns, or none")
    return multiplier(bisect_left(range(MAX_INDEX), 1, key=fits))


def least_epsilon(kind: Kind, count: int, delta: float, *, mixed: bool = False) -> float:
    """What `count` columns cost with the most noise that there is."""
    return _composed((Charge(kind, multiplier(MAX_INDEX), count),), delta, mixed=mixed)


def multiplier(index: int) -> float:
    """Four-digit numbers in order: the first is the least noise, that of `MAX_INDEX` the most."""
    power, digits = divmod(index, _TENFOLD)
    exponent = round(math.log10(MIN_NOISE)) + power - (DIGITS - 1)
    return float(f"{digits + 10 ** (DIGITS - 1)}e{exponent}")


@lru_cache(maxsize=4096)
def _laplace(merged: _Merged, delta: float) -> float:
    pure = math.fsum(count / noise for noise, count in merged)
    return pure if not merged or delta == 0 else min(pure, _renyi(merged, (), delta))


@lru_cache(maxsize=4096)
def _renyi(laplace: _Merged, gaussian: _Merged, delta: float) -> float:
    # Here and below: importing it takes seconds, which commands without accounting should not wait for.
    from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NeighboringRelation  # noqa: PLC0415
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415

    accountant = RdpAccountant(_ORDERS, neighboring_relation=NeighboringRelation.REPLACE_ONE)
    # Multipliers are b / S and σ / S for the full sensitivity S, whatever the relation.
    for event, merged in ((LaplaceDpEvent, laplace), (GaussianDpEvent, gaussian)):
        for noise, count in merged:
            accountant.compose(event(min(noise, _RDP_NOISE)), count)
    return float(accountant.get_epsilon(delta / len(_ORDERS)))


@lru_cache(maxsize=4096)
def _gaussian(noise: float, delta: float) -> float:
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian  # noqa: PLC0415

    # The bound from concentrated DP is larger; it serves where the closed form does not.
    concentrated = 1 / (2 * noise * noise) + math.sqrt(2 * math.log(1 / delta)) / noise
    least, most = _CLOSED
    if noise < least:
        return concentrated
    closed = float(get_epsilon_gaussian(min(noise, most), delta))
    return min(closed * (1 + _SLACK) + _SEARCHED, concentrated) if closed else 0.0
