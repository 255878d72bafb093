"""Records to train, from payloads, by tag. Run by a helper."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.core.declared import Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Trained
from maskedlark.core.sharing import ByteRows
from maskedlark.wire import payload_form
from maskedlark.wire.columns import TrainColumns
from maskedlark.wire.payloads import Index, Payloads
from maskedlark.wire.report import Opener

Candidates = tuple[NDArray[np.int64], ...]


class Rows(NamedTuple):
    """The records of one tag: which payloads they are in, and what these hold."""

    rows: Index
    features: ByteRows
    secrets: ByteRows
    candidates: Candidates


def read(opener: Opener, payloads: Payloads, ids: ByteRows) -> dict[str, tuple[Index, Trained]]:
    """The records of all payloads that are as declared, by tag, with the payloads that they are in.

    `ids` has one a payload. Tags without a record are left out.
    """
    models = opener.shape.models
    by_form = {tag: _by_form(opener, model, payloads) for tag, model in models.items()}
    one_by_one: dict[str, list[tuple[int, TrainColumns, bytes]]] = {tag: [] for tag in models}
    for row, found in payloads.strict():
        assert isinstance(found.columns, TrainColumns)
        assert by_form[found.columns.tag] is None, "a form has missed a record: there is one encoding of each"
        one_by_one[found.columns.tag].append((row, found.columns, found.secret))
    every = {
        tag: by_form[tag] or _strict(model, opener.place, one_by_one[tag]) for tag, model in models.items()
    }
    return {
        tag: (each.rows, _expand(models[tag], opener.place, each, ids[each.rows]))
        for tag, each in every.items()
        if len(each.rows)
    }


def _by_form(opener: Opener, model: Model, payloads: Payloads) -> Rows | None:
    """The records of a model that shows all candidates: these never vary, so one row of them is kept."""
    form = payload_form.trained(model, opener.place, opener.size)
    if form is None:
        return None
    index = payloads.take(form)
    candidates = tuple(np.array([space.values], np.int64) for space in model.labels)
    return Rows(index, payloads.rows[index, form.free], payloads.rows[index, form.secret], candidates)


def _strict(model: Model, place: int, found: Sequence[tuple[int, TrainColumns, bytes]]) -> Rows:
    """The records of a model whose candidates vary, as the strict decoder read them."""
    shown = [columns for _, columns, _ in found]
    labels = [[columns.candidates[i] for columns in shown] for i in range(len(model.labels))]
    return Rows(
        np.array([row for row, _, _ in found], np.intp),
        _byte_rows([columns.features for columns in shown], model.features),
        _byte_rows([secret for _, _, secret in found], payload_form.secret_bytes(model, place)),
        tuple(
            np.array(each, np.int64).reshape(len(found), model.policy.count(space))
            for each, space in zip(labels, model.labels, strict=True)
        ),
    )


def _byte_rows(records: Sequence[bytes], width: int) -> ByteRows:
    return np.frombuffer(b"".join(records), np.uint8).reshape(len(records), width)


def _expand(model: Model, place: int, each: Rows, ids: ByteRows) -> Trained:
    carried = sharing.cut(each.secrets.tobytes(), each.secrets.shape[1])
    shares = sharing.recover(carried, ids, Purpose.TRAIN, place, model.secrets())
    return Trained(ids, each.features, each.candidates, shares)
