"""Networks in integers: the same masked gradient, bit for bit, on every machine. `docs/EXACT.md` says how."""

VERSION = 1
"""Raised with every change of what comes out, to the bit: helpers of two versions must not be added up."""
