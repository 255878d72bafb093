"""Networks in integers: the same masked gradient, bit for bit, on every machine. `docs/EXACT.md` says how."""
