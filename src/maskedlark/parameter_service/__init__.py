"""The parameter service: publishes what ad servers declare and helpers' keys, signed and never changed."""
