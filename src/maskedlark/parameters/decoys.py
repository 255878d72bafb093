"""Public rows that fakes are made of: those of a table, or made up from an encoder. Run by the ad server."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.features import table as tables
from maskedlark.features.column import Column, is_missing, text
from maskedlark.features.encoder import Encoder
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.features.kinds import BooleanColumn, Fitted, OneHotColumn
from maskedlark.features.scaled import ScaledColumn
from maskedlark.features.table import Table
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.wire.columns import MAX_KEY_TEXT, Key

DECOYS = 8
"""The most decoys that are made up per purpose."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")


def of_document(table: Table | None, encoders: list[Encoder], document: Document) -> Iterator[dict[str, Any]]:
    """For every purpose, the rows of the table as decoys; without it, made-up rows of the models' encoders.

    Keys are not made up: a key that no source has would be a group of fakes alone.
    """
    if document.values and (table is not None or not document.keys):
        columns = [key_cells(column) for column in tables.read(table or {}, document.keys)]
        for row in zip(*columns, strict=True) if columns else [()]:
            yield {"keys": dict(zip(document.keys, row, strict=True))}
    for model, encoder in product(document.models, encoders):
        if model.encoder == encoder.digest.hex():
            rows = decoy_rows(encoder) if table is None else encoder.encode(table)
            yield from ({"tag": model.tag, "columns": row.tobytes().hex()} for row in rows)


def key_cells(column: Column) -> list[Key]:
    """Texts, or integers if all are: those can be filtered by range."""
    texts = ["" if is_missing(value) else text(value) for value in column.values]
    if long := [place for place, each in enumerate(texts) if len(each.encode()) > MAX_KEY_TEXT]:
        change = f"a key has at most {MAX_KEY_TEXT} bytes; shorten it"
        raise ColumnDoesNotFit(column.name, column.where(long[0]), change)
    entries: list[Key] = [*map(int, texts)] if all(map(_WHOLE.fullmatch, texts)) else [*texts]
    return [entries[place] for place in column.places.tolist()]


def decoy_rows(encoder: Encoder) -> NDArray[np.uint8]:
    """Made-up rows: the same for the same encoder."""
    rng = FixedRandomness(encoder.to_json().encode())
    rows = encoder.encode({fitted.name: _cells(fitted, rng) for fitted in encoder.columns})
    return np.unique(rows, axis=0)


def _cells(fitted: Fitted, rng: Randomness) -> list[Any]:
    """Random values that such a column may hold."""
    drawn = rng.unit(DECOYS).tolist()
    match fitted:
        case ScaledColumn():
            return [fitted.low + each * (fitted.high - fitted.low) for each in drawn]
        case OneHotColumn():
            known = fitted.categories or ("another",)
            return [known[int(each * len(known))] for each in drawn]
        case BooleanColumn():
            return [each < 0.5 for each in drawn]
        case _:
            return [f"made up {place}" for place in range(DECOYS)]
