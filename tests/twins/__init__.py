"""Slow twins: the same mathematics in plain Python integers, sharing no code with the package."""
