"""The ad server's own rows: as bytes, how many records stand behind them, and the noise to plan with.

Run by the ad server, which has the features; nothing here depends on a label.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.query_arguments import check_cost
from maskedlark.dp import accountant
from maskedlark.errors import BadArguments, NotDeclared
from maskedlark.features import table as tables
from maskedlark.features.encoder import Encoder
from maskedlark.ledger.budget import Account
from maskedlark.parameters.document import Document
from maskedlark.training.errors import NO_ENCODER, NO_ROWS, RowsDoNotFit

Bytes = NDArray[np.uint8]


def encoded(table: Any, encoder: Encoder | None, width: int) -> Bytes:  # noqa: ANN401 - any table
    """Rows as the bytes that browsers sent."""
    if isinstance(table, np.ndarray) and table.dtype.names is None:
        if table.dtype != np.uint8 or table.ndim != 2:
            raise RowsDoNotFit(
                f"an array of {table.dtype} and {table.ndim} dimensions: give encoded bytes, uint8 (n, "
                f"{width}), or a table of named columns with its encoder"
            )
        rows = table
    elif encoder is None:
        raise RowsDoNotFit(NO_ENCODER)
    else:
        rows = encoder.encode(table)
    if not len(rows):
        raise RowsDoNotFit(NO_ROWS)
    if rows.shape[1] != width:
        raise RowsDoNotFit(f"the model takes {width} bytes per row, these have {rows.shape[1]}")
    return np.ascontiguousarray(rows)


def asked_rows(table: Any, encoder: Encoder | None, width: int) -> Bytes:  # noqa: ANN401 - any table
    """Rows that a question is about. Refuses missing values in columns of which the encoder saw none.

    Those are rather the table's fault than what browsers sent; where the encoder saw some, it has a byte.
    """
    if encoder is None or (isinstance(table, np.ndarray) and table.dtype.names is None):
        return encoded(table, encoder, width)
    there = tables.read(table, [fitted.name for fitted in encoder.columns])
    for fitted, column in zip(encoder.columns, there, strict=True):
        if column.absent.any() and not fitted.indicator:
            place = column.where(int(column.absent.argmax()))
            raise RowsDoNotFit(
                f"column {fitted.name!r}, {place}: a value is missing, and the encoder saw none missing "
                "there. Fill it in or leave the row out; or pass encoder.encode(table), which has the "
                "median, or no category, in its place"
            )
    return encoded({column.name: column for column in there}, encoder, width)


def real_error(rate: float, real: float) -> float:
    """The standard error of the number of real records, as a part of it: nobody knows how many are fakes."""
    return math.sqrt(rate * (1 - rate) / max(real, 1.0)) / (1 + rate)


def first_noise(
    document: Document, function: str, tag: str, noise: float | None, epsilon: float | None
) -> float:
    """The noise of a first release at this ε: earlier charges must not make another question of it."""
    check_cost(noise, epsilon)
    mechanism = document.mechanism(function)
    if epsilon is None or noise is not None:
        return mechanism.noise_floor if noise is None else noise
    account = Account(document)
    try:
        least = accountant.noise_for(mechanism.kind, 1, epsilon, account.delta(tag), mixed=account.mixed)
    except NotDeclared:
        most = accountant.least_epsilon(mechanism.kind, 1, account.delta(tag), mixed=account.mixed)
        raise BadArguments(
            f"no noise makes a release cost only ε = {epsilon:g}: with the most there is, it is {most:.3g}. "
            "Take a larger ε"
        ) from None
    return max(least, mechanism.noise_floor)
