"""Where a helper's work runs: this process, worker processes, or a Ray cluster. The same bytes from each."""
