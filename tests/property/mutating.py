"""Messages with one thing changed."""

from maskedlark.randomness import FixedRandomness


def mutate(data: bytes, rng: FixedRandomness) -> bytes:
    """A bit flipped, a byte replaced, bytes cut off, put in, put behind, taken out or doubled."""
    kind, at, byte, size = (int(rng.below(bound, 1)[0]) for bound in (8, len(data), 256, 8))
    some = rng.bytes(size + 1)
    return [
        data[:at] + bytes([data[at] ^ 1 << byte % 8]) + data[at + 1 :],
        data[:at] + bytes([byte]) + data[at + 1 :],
        data[:at],
        data + some,
        data + bytes(size + 1),
        data[:at] + some + data[at:],
        data[:at] + data[at + size + 1 :],
        data[:at] + data[at : at + size + 1] * 2 + data[at + size + 1 :],
    ][kind]
