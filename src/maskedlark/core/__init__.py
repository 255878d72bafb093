"""The pure mathematics of the protocol: no I/O, no codec, no service."""
