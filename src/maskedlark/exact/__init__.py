"""Networks in integers: the same masked gradient, bit for bit, on every machine (`docs/EXACT.md`).

Gradients, moments and cells are run by helpers; models are read and weights quantised by the ad server.
"""

VERSION = 2
"""Raised with every change of the output, down to the bit: shares of two versions must not be added up."""
