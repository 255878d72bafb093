"""The pure mathematics of the protocol, used by every party: no I/O, no codec, no service."""
