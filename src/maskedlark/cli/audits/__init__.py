"""What `maskedlark audit` runs: each a module with `run`, which attacks and returns its findings."""
