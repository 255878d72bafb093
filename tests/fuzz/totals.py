"""How many inputs the long run tries. `scripts/test --long tests/fuzz -rP` shows what was tried."""

from tests.fuzz.running import Decoder

WANTED = 1_000_000
"""Over all decoders and endpoints."""
INPUTS = 24_000
"""For a decoder of weight 1."""
REQUESTS = {"ad server": 40_000, "parameter service": 32_000, "helper": 32_000}
DRAWN, MIN_DRAWN = 150, 150
"""Requests for every operation of a service's OpenAPI, and at least for all of them together."""


def inputs(decoder: Decoder) -> int:
    """For one decoder."""
    return int(INPUTS * decoder.weight)


def ran(name: str, inputs: int, seconds: float, what: str) -> None:
    """Print a line of the table; pytest shows it with -s or -rP."""
    print(f"{name:44} {inputs:>8,} inputs {seconds:7.1f} s  {what}")
