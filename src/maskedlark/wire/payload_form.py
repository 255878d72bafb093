"""Forms of payloads: where salt, secret and columns are in all payloads of one kind. Run by helpers."""

from functools import lru_cache
from typing import NamedTuple

from maskedlark.core import field, sharing
from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.errors import DoesNotFit
from maskedlark.wire import payload
from maskedlark.wire.columns import SALT_BYTES, TrainColumns
from maskedlark.wire.layout import Layout, inverted, span, spans


class PayloadForm(NamedTuple):
    """The layout of payloads, and the spans that vary in it or are bound by the column hash."""

    layout: Layout
    length: int
    """Of the body."""
    salt: slice
    secret: slice
    columns: slice
    free: slice
    """The columns' varying bytes."""


def secret_bytes(declared: Measure | Model, place: int) -> int:
    """The length of the secret in a helper's payload."""
    return sharing.SEED_BYTES if place else field.BYTES * declared.secrets()


@lru_cache(maxsize=64)
def trained(model: Model, place: int, size: int) -> PayloadForm | None:
    """The form of a model's payloads: features vary. None if candidates do too, or if none fit."""
    if not isinstance(model.policy, All):
        return None
    candidates = tuple(space.values for space in model.labels)
    features = bytes(model.features)
    shown, other = (TrainColumns(model.tag, each, candidates) for each in (features, inverted(features)))
    try:
        return _form(secret_bytes(model, place), shown.encode(), other.encode(), size)
    except DoesNotFit:
        return None


@lru_cache(maxsize=1024)
def measured(measure: Measure, place: int, length: int, size: int) -> PayloadForm | None:
    """The form of payloads with bodies of this length: all columns vary. None if there can be none."""
    if length > size - payload.HEAD_BYTES:  # before allocating: a payload may claim any length
        return None
    secret = secret_bytes(measure, place)
    without = len(payload.body(bytes(SALT_BYTES), bytes(secret), b"")) - 1
    for head in (1, 2, 3, 5):  # The head of a byte string grows with its length.
        shown = bytes(max(0, length - without - head))
        if len(payload.body(bytes(SALT_BYTES), bytes(secret), shown)) == length:
            return _form(secret, shown, inverted(shown), size)
    return None


def _form(secret: int, columns: bytes, other: bytes, size: int) -> PayloadForm:
    """The encoder's form, from columns and the same with all varying bytes changed."""

    def padded(salt: bytes, secret: bytes, columns: bytes) -> bytes:
        return payload.pad(payload.body(salt, secret, columns), size)

    usual = {"salt": bytes(SALT_BYTES), "secret": bytes(secret), "columns": columns}
    message, places = padded(**usual), spans(padded, usual)
    free = span(message, padded(**{**usual, "columns": other}))
    layout = Layout.of(message, [places["salt"], places["secret"], free])
    return PayloadForm(layout=layout, length=len(payload.body(*usual.values())), free=free, **places)
