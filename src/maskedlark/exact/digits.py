"""Byte products, where they are fast: eight signed digits instead of two float64 limbs. Run by helpers.

An 8-bit product with 32-bit sums is exact, and on a processor that has it, eight are faster than two in
float64. One addition and a change of type turn a field element's limbs into digits -128 … 127. Layers with
inputs 0 … 255 can use it, as inputs - 128 and a column of ones, whose product with the errors is the bias's
gradient and corrects for the 128. The result is the same integers; a device is used this way only after a
known-answer check (processors without the instruction may saturate). GPUs use them for forward passes.
"""

import sys
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from maskedlark.exact import products
from maskedlark.exact.products import Limbs

DIGITS = 8
OFFSET = 128
_EVERY_OFFSET = int.from_bytes(bytes([OFFSET] * DIGITS), "little", signed=True)
_MIN_WORK = 1 << 16
"""Layers with fewer weights are faster in float64."""
MAX_INPUTS = 1 << 16
"""Sums of this many products of two bytes stay below 2^31."""
_JOINED_AT_ONCE = 1 << 15
"""This many numbers are joined at a time, so that they stay in a core's cache."""


def is_faster(inputs: int, outputs: int, device: torch.device) -> bool:
    """Whether byte products are available and faster for this layer."""
    return inputs * outputs >= _MIN_WORK and inputs < MAX_INPUTS and available(device)


def can_contract(device: torch.device) -> bool:
    """Whether `contract` is faster than two float64 products: GPUs would spend more on turning digits."""
    return device.type == "cpu" and available(device)


@cache
def available(device: torch.device) -> bool:
    """Whether the device multiplies bytes exactly: a known-answer check at the largest magnitudes."""
    if sys.byteorder != "little" or not hasattr(torch, "_int_mm"):
        return False
    rng = np.random.default_rng(5)
    for rows, length, columns in ((64, 4096, 48), (33, 785, 17), (8, 3, 5)):
        left = rng.choice(np.array([-128, -127, 127]), (rows, length))
        right = rng.choice(np.array([-128, -127, 127]), (length, columns))
        right[:, 0], left[0] = -128, -128
        own, other = (torch.from_numpy(each.astype(np.int8)).to(device) for each in (left, right))
        for form in (own, own.T.contiguous().T):
            if (multiply(form, other).cpu().numpy() != left @ right).any():
                return False
    return True


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """An int8 product with int32 sums."""
    return torch._int_mm(left, right) if left.device.type == "cpu" else multiply_padded(left, right)


def multiply_padded(left: Tensor, right: Tensor) -> Tensor:
    """As `multiply`, for GPUs: more than 16 rows, multiples of 16, both sides stored along their sums."""
    (rows, length), columns = left.shape, right.shape[1]
    own = _padded(left, max(rows, 17), length + -length % 16)
    other = _padded(right.T, columns + -columns % 16, length + -length % 16)
    return torch._int_mm(own, other.T)[:rows, :columns]


def _padded(numbers: Tensor, rows: int, columns: int) -> Tensor:
    """With zeros up to this size, in order of rows. What has it already is not copied."""
    extra = rows - numbers.shape[0], columns - numbers.shape[1]
    return (pad(numbers, (0, extra[1], 0, extra[0])) if any(extra) else numbers).contiguous()


def with_ones(numbers: Tensor) -> Tensor:
    """Inputs 0 … 255 of any type, minus 128, as signed bytes, and a column of ones: (n, width + 1).

    For GPUs there are more columns, up to a multiple of 16.
    """
    width = numbers.shape[1]
    whole = _whole(width, numbers.device)
    answer = torch.empty((len(numbers), whole), dtype=torch.int8, device=numbers.device)
    answer[:, width:] = 1
    if numbers.dtype == torch.uint8:
        torch.bitwise_xor(numbers, OFFSET, out=answer.view(torch.uint8)[:, :width])
    else:
        answer[:, :width] = numbers - OFFSET
    return answer


def weight_with_zeros(weight: Tensor) -> Tensor:
    """A weight (outputs, inputs) of 8 bits for `linear`: zeros where `with_ones` has ones.

    For GPUs there are more columns, up to a multiple of 16, and they are stored transposed.
    """
    outputs, width = weight.shape
    whole = _whole(width, weight.device)
    if weight.device.type != "cpu":
        return _padded(weight.to(torch.int8), outputs + -outputs % 16, whole).T
    answer = torch.zeros((whole, outputs), dtype=torch.int8)
    answer[:-1] = weight.T
    return answer


def _whole(width: int, device: torch.device) -> int:
    """The width with ones."""
    return width + 1 if device.type == "cpu" else (width // 16 + 1) * 16


def digits(limbs: Limbs) -> Tensor:
    """Folded limbs as digits of base 256: (n, 8 width), int8, low limb first.

    A folded limb is below 2^30 + 2^23 in magnitude, so it has four digits and nothing is carried from the
    low limb to the high one. Adding 128 to every byte makes the carries; flipping its first bit undoes it.
    """
    words = limbs.high.long().bitwise_left_shift_(32).add_(limbs.low.long())
    words.add_(_EVERY_OFFSET).bitwise_xor_(_EVERY_OFFSET)
    return words.contiguous().view(torch.int8)


def contract(limbs: Limbs, inputs: Tensor, weight: Limbs, bias: Limbs, transposed: bool) -> None:
    """Σ over records of error times input, and of the error itself, into limbs that are not folded."""
    own = digits(limbs)
    width = limbs.low.shape[1]
    if transposed:
        sums = multiply(inputs.T, own).view(-1, width, DIGITS).movedim(2, 0)
    else:
        sums = multiply(own.T, inputs).view(width, DIGITS, -1).movedim(1, 0)
    ones = sums[:, -1] if transposed else sums[:, :, -1]
    rest = sums[:, :-1] if transposed else sums[:, :, :-1]
    _horner(ones, bias)
    correction = products.split(products.rotate(products.join(bias), 7))
    rows = max(1, _JOINED_AT_ONCE // rest.shape[2])
    for start in range(0, rest.shape[1], rows):
        part = slice(start, start + rows)
        _horner(rest[:, part], Limbs(weight.low[part], weight.high[part]))
        for limb, of_limb in zip(weight, correction, strict=True):
            limb[part] += of_limb if transposed else of_limb[part, None]


def _horner(sums: Tensor, answer: Limbs) -> None:
    """Eight digits' sums, (8, …), as two limbs: below 2^53, because a block has fewer than 2^14 records."""
    for limb, own in zip(answer, (sums[:4], sums[4:]), strict=True):
        limb.copy_(own[3])
        for digit in (2, 1, 0):
            limb.mul_(256.0).add_(own[digit])
