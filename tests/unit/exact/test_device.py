"""A device proves itself before it is used; one that rounds is refused."""

import pytest
import torch

from maskedlark.exact import device, digits, products
from maskedlark.exact.errors import InexactDevice
from maskedlark.exact.products import Limbs


def test_the_cpu_is_exact() -> None:
    assert not any(device.failures(torch.device("cpu")).values())
    assert device.ready("cpu") == torch.device("cpu")


def test_a_product_that_loses_a_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: exact(a.bfloat16().to(a.dtype), b))
    device._ready.cache_clear()
    try:
        with pytest.raises(InexactDevice, match="products"):
            device.ready("cpu")
    finally:
        device._ready.cache_clear()


def test_a_root_that_is_off_in_the_last_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    root = device.root
    monkeypatch.setattr(device, "root", lambda x: root(x) * (1 + 2.0**-52))
    assert device.failures(torch.device("cpu"))["elementwise float64"]


def test_bytes_that_saturate_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors without 8-bit dot products may add pairs in 16 bits, which saturates."""
    digits.available.cache_clear()
    monkeypatch.setattr(digits, "multiply", lambda a, b: (a.int() @ b.int()).clamp(-32768, 32767))
    try:
        assert not digits.available(torch.device("cpu"))
    finally:
        digits.available.cache_clear()


def test_limbs_that_are_folded_wrongly_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, calls = products.scale, []

    def wrong_once(limbs: Limbs, numbers: torch.Tensor) -> Limbs:
        calls.append(1)
        right = scale(limbs, numbers)
        return Limbs(right.low + 1, right.high) if len(calls) == 1 else right

    monkeypatch.setattr(products, "scale", wrong_once)
    assert device.failures(torch.device("cpu"))["limbs of field elements"]
