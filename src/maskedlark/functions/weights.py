"""Quantised weights on the wire: all that a step sends. Binary, canonical, decoded strictly.

weights = version 1 byte, bits 1 byte, parameters 2 bytes, layers 2 bytes,
          an exponent per parameter 1 byte each, an exponent per hidden layer 1 byte each,
          values: one signed integer of 8 or 16 bits each, the low byte first
"""

import base64
import struct

import numpy as np

from maskedlark.errors import BadArguments, WrongLength, WrongType
from maskedlark.exact import quantise
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised

_VERSION = 1
_HEAD = struct.Struct(">BBHH")
_KINDS = {8: "i1", 16: "<i2"}


def encode(weights: Quantised) -> bytes:
    """Encode weights. Run by the ad server."""
    head = _HEAD.pack(_VERSION, weights.bits, len(weights.exponents), len(weights.activations))
    values = weights.values.astype(_KINDS[weights.bits])
    return head + bytes(weights.exponents) + bytes(weights.activations) + values.tobytes()


def to_text(weights: Quantised) -> str:
    """Encode weights for JSON. Run by the ad server."""
    return base64.b64encode(encode(weights)).decode()


def from_text(network: Network, text: str) -> Quantised:
    """Decode weights that came in JSON. Run by helpers."""
    try:
        sent = base64.b64decode(text, validate=True)
    except ValueError:  # Not binascii.Error, which non-ASCII text does not raise.
        raise BadArguments("weights are base64") from None
    return decode(network, sent)


def size(network: Network, bits: int) -> int:
    """The encoded size of a network's weights, in bytes."""
    return _HEAD.size + len(network.parameters) + len(network.layers) - 1 + network.size * bits // 8


def decode(network: Network, data: bytes) -> Quantised:
    """Decode weights; refuses those that do not match the network. Run by helpers."""
    if len(data) < _HEAD.size:
        raise WrongLength("weights are cut off in their head")
    version, bits, parameters, activations = _HEAD.unpack_from(data)
    if version != _VERSION or bits not in _KINDS:
        raise WrongType("weights are of version 1, and of 8 or 16 bits")
    if (parameters, activations) != (len(network.parameters), len(network.layers) - 1):
        raise WrongLength("weights have an exponent for every parameter and hidden layer of their network")
    if len(data) != size(network, bits):
        raise WrongLength(f"the network's weights take {size(network, bits)} bytes, not {len(data)}")
    at = _HEAD.size + parameters
    values = np.frombuffer(data, _KINDS[bits], offset=at + activations).astype(np.int16)
    exponents, hidden = tuple(data[_HEAD.size : at]), tuple(data[at : at + activations])
    quantised = Quantised(values, exponents, hidden, bits)
    quantise.check(network, quantised)
    return quantised
