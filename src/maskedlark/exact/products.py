"""Products of field elements with small integers, exact in float64. Run by helpers, on CPU or GPU.

An element is cut into two limbs, low + 2^31 high. Limbs times small integers add up below 2^53, so float64
holds every partial sum, and neither the order of a sum nor a fused multiply-add (`alpha`) can change a bit.
Modulo p = 2^61 - 1 a carry out of the high limb is added to the low one, because 2^31 · 2^30 = 2^61 = 1; so
limbs are folded with shifts, and made canonical once, at the end.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from maskedlark.core.field import BITS, P
from maskedlark.exact import fused

LOW_BITS = 31
HIGH_BITS = BITS - LOW_BITS
EXACT = 1 << 52
"""Every sum stays below this."""
LIMB_TOP = (1 << (LOW_BITS - 1)) + (1 << 23)
"""The bound on a folded limb."""


class Limbs(NamedTuple):
    """Field elements as low + 2^31 high, float64; neither limb is canonical."""

    low: Tensor
    high: Tensor


def split(elements: Tensor) -> Limbs:
    """Canonical elements, int64, as folded limbs."""
    return fold(Limbs((elements & ((1 << LOW_BITS) - 1)).double(), (elements >> LOW_BITS).double()))


def fold(raw: Limbs) -> Limbs:
    """Limbs of up to 2^52 in magnitude, brought back below `LIMB_TOP`, around 0. Overwrites them."""
    if raw.low.device.type == "cuda":
        return Limbs(*fused.fold(*raw))
    low, high = raw
    carry = (low * 2.0**-LOW_BITS).round_()
    low.sub_(carry, alpha=1 << LOW_BITS)
    high.add_(carry)
    torch.mul(high, 2.0**-HIGH_BITS, out=carry).round_()
    high.sub_(carry, alpha=1 << HIGH_BITS)
    low.add_(carry)
    return raw


def join(raw: Limbs) -> Tensor:
    """Limbs of up to 2^52 in magnitude as canonical elements, int64."""
    low, high = raw.low.long(), raw.high.long()
    low.add_(high >> HIGH_BITS)
    high.bitwise_and_((1 << HIGH_BITS) - 1).bitwise_left_shift_(LOW_BITS)
    return canonical(high.add_(low))


def join_all(parts: list[Limbs]) -> Tensor:
    """The sum of fewer than 2^9 such pairs, joined once, as integers of 64 bits."""
    if len(parts) == 1:
        return join(parts[0])
    return join(
        Limbs(*(reduce(torch.add, (limb.long() for limb in own)) for own in zip(*parts, strict=True)))
    )


def canonical(elements: Tensor) -> Tensor:
    """Any int64 numbers modulo p. Overwrites them. The arithmetic shift handles negative numbers too."""
    carry = elements >> BITS
    elements.bitwise_and_(P).add_(carry)
    # Now within -4 … p + 3.
    elements.add_(elements >> 63 & P)
    return torch.sub(elements, (elements >= P).long(), alpha=P, out=elements)


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b, for canonical elements."""
    return canonical(a + b)


def rotate(elements: Tensor, bits: int) -> Tensor:
    """Canonical elements times 2^bits, canonical: a rotation of 61 bits."""
    turn = bits % BITS
    if not turn:
        return elements
    low = elements & ((1 << (BITS - turn)) - 1)
    return low.bitwise_left_shift_(turn).add_(elements >> (BITS - turn))


def weigh(masks: Tensor, numbers: Tensor, top: int) -> Limbs:
    """Σ_l masks[:, l] · numbers[:, l, …] as folded limbs; numbers are int64, at most `top` < 2^31."""
    step = max(1, (1 << 62) // (top << LOW_BITS))
    parts = [
        _weigh(masks[:, start : start + step], numbers[:, start : start + step])
        for start in range(0, numbers.shape[1], step)
    ]
    return _total(parts)


def _total(parts: list[Limbs]) -> Limbs:
    """Folded limbs, added up. Fewer than 2^20 of them stay below 2^52."""
    if len(parts) == 1:
        return parts[0]
    return fold(Limbs(*(reduce(torch.add, own) for own in zip(*parts, strict=True))))


def _weigh(masks: Tensor, numbers: Tensor) -> Limbs:
    """Sums of at most 2^62, folded as integers first, since float64 cannot hold them."""
    masks = masks.reshape(masks.shape + (1,) * (numbers.ndim - 2))
    low = ((masks & ((1 << LOW_BITS) - 1)) * numbers).sum(dim=1)
    high = ((masks >> LOW_BITS) * numbers).sum(dim=1)
    high.add_(low >> LOW_BITS)
    low.bitwise_and_((1 << LOW_BITS) - 1).add_(high >> HIGH_BITS)
    return fold(Limbs(low.double(), high.bitwise_and_((1 << HIGH_BITS) - 1).double()))


def scale(limbs: Limbs, numbers: Tensor) -> Limbs:
    """Elementwise products with integers of at most 21 bits, folded."""
    if limbs.low.device.type == "cuda":
        return Limbs(*fused.scale(*limbs, numbers))
    return fold(Limbs(limbs.low * numbers, limbs.high * numbers))


def times(limbs: Limbs, matrix: Tensor, top: int) -> Limbs:
    """The matrix product with integers of magnitude at most `top`, folded: (n, k) @ (k, m)."""
    return _total([fold(part) for part in _times(limbs, matrix, top)])


def times_kept(limbs: Limbs, matrix: Tensor, top: int, kept: Tensor) -> Limbs:
    """As `times`, and times 0 or 1, elementwise: nothing grows, so nothing is folded twice."""
    if kept.device.type == "cuda":
        return _total([Limbs(*fused.scale(*part, kept)) for part in _times(limbs, matrix, top)])
    product, kept = times(limbs, matrix, top), kept.double()
    return Limbs(product.low.mul_(kept), product.high.mul_(kept))


def _times(limbs: Limbs, matrix: Tensor, top: int) -> Iterator[Limbs]:
    """The product in parts whose sums are exact, not folded."""
    block = EXACT // (LIMB_TOP * max(top, 1))
    for place in (slice(start, start + block) for start in range(0, len(matrix), block)):
        yield Limbs(limbs.low[:, place] @ matrix[place], limbs.high[:, place] @ matrix[place])


def max_rows(top: int) -> int:
    """How many rows a product over records may have, for integers of magnitude at most `top`."""
    return EXACT // (LIMB_TOP * top)


def contract(limbs: Limbs, inputs: Tensor, weight: Limbs, bias: Limbs, transposed: bool) -> None:
    """Σ of error times input and of the error, over at most `max_rows` records, into unfolded limbs."""
    if inputs.device.type == "cuda":
        contract_with_ones(limbs, inputs, weight, bias, transposed)
        return
    inputs = inputs.double()
    for limb, of_weight, of_bias in zip(limbs, weight, bias, strict=True):
        left, right = (inputs, limb) if transposed else (limb, inputs)
        torch.mm(left.T, right, out=of_weight)
        torch.sum(limb, dim=0, out=of_bias)


def contract_with_ones(limbs: Limbs, inputs: Tensor, weight: Limbs, bias: Limbs, transposed: bool) -> None:
    """As `contract`, for GPUs: the errors are read once, since their sums are a column of the product."""
    width = inputs.shape[1]
    # Up to a multiple of 8, for which products are fast.
    ones = limbs.low.new_empty((len(inputs), (width // 8 + 1) * 8))
    ones[:, :width] = inputs
    ones[:, width:] = 1.0
    for limb, of_weight, of_bias in zip(limbs, weight, bias, strict=True):
        sums = limb.T @ ones
        of_bias.copy_(sums[:, width])
        of_weight.copy_(sums[:, :width].T if transposed else sums[:, :width])
