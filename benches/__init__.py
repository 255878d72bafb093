"""Benchmarks: ours beside a peer or a limit, in the same run, as a ratio."""
