"""Refuses a device that a process of a helper cannot compute on: at the start, before a step is claimed."""

from maskedlark.compute.engine import Engine
from maskedlark.compute.errors import UnusableDevice

_CPU = "cpu"


def check_device(engine: Engine, device: str) -> None:
    """Refuse a device that a worker cannot use, or this process, where it computes itself."""
    if device == _CPU:
        return
    failures = [*filter(None, engine.map(failure, device, range(engine.workers)))]
    who = f"{len(failures)} of {engine.workers} workers"
    if not failures and not engine.is_elsewhere:
        failures, who = [*filter(None, [failure(device, 0)])], "this process"
    if failures:
        raise UnusableDevice(
            f"{who} cannot compute on {device} ({failures[0]}): install a torch for the GPU and its driver, "
            f'let the process reach its devices, or write device = "{_CPU}" in [compute]'
        )


def failure(device: str, _item: int) -> str:
    """What keeps this process from computing exactly on a device; nothing if it can. Run by every worker."""
    try:
        from maskedlark.exact import device as devices  # noqa: PLC0415 - torch takes seconds to load

        devices.ready(device)
    except Exception as error:  # noqa: BLE001 - torch raises whatever it met
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    return ""
