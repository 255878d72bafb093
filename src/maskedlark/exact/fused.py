"""Elementwise steps of `products` in one pass over a GPU's memory. Run by helpers.

Every operation is exact on the integers it is given, so a fused multiply-add changes nothing; `products` has
the slow twins, and a device is compared with them before its first use. Torch compiles the kernels.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

_FOLD = """
template <typename T> void fold(T low, T high, T& folded_low, T& folded_high) {
    T carry = rint(low * (1.0 / 2147483648.0));
    low -= carry * 2147483648.0;
    high += carry;
    carry = rint(high * (1.0 / 1073741824.0));
    folded_high = high - carry * 1073741824.0;
    folded_low = low + carry;
}
"""
_SCALE = f"""{_FOLD}
template <typename T> void scale(T low, T high, T number, T& scaled_low, T& scaled_high) {{
    fold(low * number, high * number, scaled_low, scaled_high);
}}
"""


def fold(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """As `products.fold`, into new tensors."""
    folded: tuple[Tensor, Tensor] = _kernel(_FOLD)(low, high)
    return folded


def scale(low: Tensor, high: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """As `products.scale`."""
    scaled: tuple[Tensor, Tensor] = _kernel(_SCALE)(low, high, numbers)
    return scaled


@cache
def _kernel(code: str) -> Callable[..., tuple[Tensor, Tensor]]:
    kernel: Callable[..., tuple[Tensor, Tensor]]
    kernel = torch.cuda.jiterator._create_multi_output_jit_fn(code, num_outputs=2)
    return kernel
