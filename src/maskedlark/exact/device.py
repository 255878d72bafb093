"""Refuses devices that do not compute exactly. Run once per process and device, before the first product.

TF32, emulated float64 and Strassen-like kernels break the bounds that exactness rests on; the first two
are switched off, and the known-answer check detects the rest. `python -m maskedlark.exact.device cuda` runs
the check by hand; it needs only torch and numpy.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.exact import products
from maskedlark.exact.errors import InexactDevice
from maskedlark.exact.products import Limbs

_ROWS, _COLUMNS = 96, 80


def ready(device: str | torch.device) -> torch.device:
    """The device, once it has passed the known-answer check; raises if it fails."""
    return _ready(torch.device(device))


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Switches off the caller's autocast, TF32 and autograd inside the block."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@cache
def _ready(device: torch.device) -> torch.device:
    with exact(device):
        checks = failures(device)
    for name, wrong in checks.items():
        if wrong:
            raise InexactDevice(f"{device} does not compute exactly: {name}; use another device")
    return device


def failures(device: torch.device) -> dict[str, bool]:
    """Each part of the known-answer check, and whether it failed."""
    checks = {
        f"{dtype} products of {bits} bits over {length}": _product_is_wrong(device, dtype, bits, length)
        for dtype, bits, length in (
            (torch.float32, 24, 517),
            (torch.float32, 24, 64),
            (torch.float64, 53, 8000),
            (torch.float64, 53, 500),
            (torch.float64, 53, 7),
        )
    }
    return checks | {
        "elementwise float64": _elementwise_is_wrong(device),
        "limbs of field elements": _limbs_are_wrong(device),
    }


def _limbs_are_wrong(device: torch.device) -> bool:
    """Compare folding and scaling of limbs at their extremes with the CPU's; other devices fuse them."""
    rng = np.random.default_rng(2)
    raw = torch.from_numpy(rng.integers(-products.EXACT, products.EXACT + 1, (2, 64, 512))).double()
    raw[:, 0, ::2], raw[:, 1, ::2] = products.EXACT, -products.EXACT
    numbers = torch.from_numpy(rng.integers(-(1 << 21), 1 << 21, (64, 512))).double()

    def computed(place: torch.device) -> list[Tensor]:
        folded = products.fold(Limbs(*raw.to(place, copy=True)))
        scaled = products.scale(Limbs(*(limb[:, :1] for limb in folded)), numbers.to(place))
        return [limb.cpu() for limb in (*folded, *scaled)]

    pairs = zip(computed(device), computed(torch.device("cpu")), strict=True)
    return any(not torch.equal(got, wanted) for got, wanted in pairs)


def _product_is_wrong(device: torch.device, dtype: torch.dtype, bits: int, length: int) -> bool:
    """Compare a product whose sums come within a factor of two of 2^bits with CPU integer arithmetic."""
    rng = np.random.default_rng(length)
    top = max(1, (1 << bits) // (255 * length) - 1)
    # Odd numbers of one sign add up to the bound, and make a lost last bit visible.
    left = (rng.integers(top // 2, top + 1, (_ROWS, length)) | 1).clip(max=top)
    right = rng.integers(128, 256, (length, _COLUMNS)) * np.where(rng.random(_COLUMNS) < 0.5, -1, 1)
    answer = torch.from_numpy(left).to(device, dtype) @ torch.from_numpy(right).to(device, dtype)
    return bool((answer.double().cpu().numpy() != (left @ right).astype(np.float64)).any())


def _elementwise_is_wrong(device: torch.device) -> bool:
    """Compare roots, quotients and roundings with IEEE 754 results computed by Python, one by one."""
    rng = np.random.default_rng(1)
    a = rng.integers(1, 1 << 53, 4096).astype(np.float64)
    b = rng.integers(1, 1 << 40, 4096).astype(np.float64)
    x, y = torch.from_numpy(a).to(device), torch.from_numpy(b).to(device)
    pairs = [
        (root(x), [math.sqrt(v) for v in a.tolist()]),
        (torch.div(x, y), [v / w for v, w in zip(a.tolist(), b.tolist(), strict=True)]),
        (torch.div(x, y).floor(), [float(int(v / w)) for v, w in zip(a.tolist(), b.tolist(), strict=True)]),
        ((x * y + x).trunc(), [v * w + v for v, w in zip(a.tolist(), b.tolist(), strict=True)]),
    ]
    return any(got.cpu().tolist() != wanted for got, wanted in pairs)


def root(numbers: Tensor) -> Tensor:
    """√x, correctly rounded. On CPUs numpy computes it: torch's vector library is sometimes off in the last
    place (27 of 4096 random integers, torch 2.13 with MKL).
    """
    if numbers.device.type == "cpu":
        return torch.from_numpy(np.sqrt(numbers.numpy()))
    return numbers.sqrt()


def tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device; copies read-only arrays and reversed views, which torch does not accept."""
    fine = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if fine else np.array(array, order="C")).to(device)


def array(numbers: Tensor) -> NDArray[Any]:
    """A tensor as an array. From a GPU it comes through pinned memory, four times as fast."""
    if numbers.device.type == "cpu":
        return numbers.numpy()
    return torch.empty_like(numbers, device="cpu", pin_memory=True).copy_(numbers).numpy()


def free(device: torch.device) -> int:
    """How many bytes of a GPU's memory a computation may take: most of what nobody holds."""
    return unused(device) * 3 // 4


def unused(device: str | torch.device) -> int:
    """The bytes of a GPU's memory that no process holds; of others, more than any shard takes."""
    place = torch.device(device)
    if place.type != "cuda":
        return 1 << 62
    stats = torch.cuda.memory_stats_as_nested_dict(place)
    reserved, allocated = (stats[kind]["all"]["current"] for kind in ("reserved_bytes", "allocated_bytes"))
    return int(torch.cuda.mem_get_info(place)[0] + reserved - allocated)


def _main(names: list[str]) -> None:
    for name in names or ["cpu"]:
        for check, wrong in failures(ready(name)).items():
            sys.stdout.write(f"{name}: {check}: {'WRONG' if wrong else 'exact'}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
