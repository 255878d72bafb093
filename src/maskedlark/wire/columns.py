"""The open columns of a record, which every helper sees. Made by browsers, decoded by helpers.

    to aggregate = a cell of 65 bytes for every declared key
    to train     = model (1 byte, its place in the document), typed columns, candidates
    candidates   = 2 bytes each: places in the label space; none if all are shown
    cell         = length (1 byte, at most 64), text, zeros;  or 255, a signed number of 8 bytes, zeros

Every column has a fixed width, so a declaration's records are rows of an array. The public part binds them by
a salted hash, so that all helpers get the same.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.candidates import All
from maskedlark.core.declared import Bytes, Category, Column, Measure, Model
from maskedlark.core.labels import LabelSpace, integers
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Entry
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import NotDeclared, WrongLength, WrongType
from maskedlark.wire.errors import BadPadding, OutOfRange

SALT_BYTES = 16
HASH_BYTES = 32
MAX_KEY_TEXT = 64
MAX_KEY_NUMBER = (1 << 63) - 1
CELL_BYTES = 1 + MAX_KEY_TEXT
ABSENT = (1 << 32) - 1
"""Fills up a bag with fewer entries than its length."""
CANDIDATE_BYTES = 2
NUMBER = 255
"""In place of a text's length: a number follows."""
NUMBER_BYTES = 8
_DOMAINS = {purpose: b"maskedlark v2 columns" + purpose.byte for purpose in Purpose}

Key = Entry
"""The value of an aggregation key: a text, or an integer that queries may filter by range."""


def digest(salted: bytes, purpose: Purpose) -> bytes:
    """The column hash of a record: of its salt and open columns. The salt hides the columns from guesses."""
    return hashlib.sha256(_DOMAINS[purpose] + salted).digest()


def width(declared: Measure | Model) -> int:
    """How many bytes the open columns of a record take."""
    if isinstance(declared, Measure):
        return CELL_BYTES * len(declared.keys)
    return 1 + declared.width + CANDIDATE_BYTES * sum(shown for _, shown in _shown(declared))


def _shown(model: Model) -> Iterator[tuple[LabelSpace, int]]:
    """The labels whose candidates are on the wire, and how many: none where all are shown."""
    if not isinstance(model.policy, All):
        yield from ((space, model.policy.count(space)) for space in model.labels)


# To aggregate.


@lru_cache(maxsize=1 << 16, typed=True)
def encode_key(key: Key) -> bytes:
    """A cell. Cached, by type too since 1 == 1.0 == True: records are grouped by few keys."""
    check_key(key)
    if isinstance(key, str):
        data = key.encode()
        return bytes([len(data)]) + data.ljust(MAX_KEY_TEXT, b"\0")
    return bytes([NUMBER]) + key.to_bytes(NUMBER_BYTES, "big", signed=True).ljust(MAX_KEY_TEXT, b"\0")


def check_key(key: object) -> None:
    """Refuse what no cell can hold. Run by browsers before they seal."""
    if type(key) not in (str, int):
        raise WrongType("a key is a text or a whole number")
    if isinstance(key, str) and len(_utf8(key)) > MAX_KEY_TEXT:
        raise WrongLength(f"a key is a text of at most {MAX_KEY_TEXT} bytes")
    if isinstance(key, int) and abs(key) > MAX_KEY_NUMBER:
        raise OutOfRange("a key that is a number has at most 63 bits")


def _utf8(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise WrongType("a key that is not UTF-8") from None


def check_keys(keys: Mapping[str, object]) -> None:
    """Refuse keys that no cell can hold."""
    for key in keys.values():
        check_key(key)


def decode_key(cell: bytes) -> Key:
    """The key in a cell. Run by helpers."""
    size = cell[0]
    end = 1 + (NUMBER_BYTES if size == NUMBER else size)
    if size > MAX_KEY_TEXT and size != NUMBER:
        raise WrongType("a key is a text of at most 64 bytes or a number")
    if any(cell[end:]):
        raise BadPadding("a key is followed by something other than zeros")
    if size == NUMBER:
        number = int.from_bytes(cell[1:end], "big", signed=True)
        check_key(number)
        return number
    try:
        return cell[1:end].decode()
    except UnicodeDecodeError:
        raise WrongType("a key that is not UTF-8") from None


def decode_keys(data: bytes) -> tuple[Key, ...]:
    """All keys of a record."""
    return tuple(decode_key(data[at : at + CELL_BYTES]) for at in range(0, len(data), CELL_BYTES))


def aggregate_columns(measure: Measure, keys: Sequence[Sequence[Key]], records: int) -> ByteRows:
    """The open columns of measured records: a column for every declared key. Run by browsers."""
    if len(keys) != len(measure.keys):
        raise NotDeclared(
            f"{len(measure.keys)} keys are declared ({', '.join(measure.keys)}), not {len(keys)}"
        )
    _check_records(keys, records)
    cells = [b"".join(map(encode_key, column)) for column in keys]
    rows = [np.frombuffer(column, np.uint8).reshape(records, CELL_BYTES) for column in cells]
    return np.concatenate([np.empty((records, 0), np.uint8), *rows], axis=1)


# To train.


def encode_typed(declared: Sequence[Column], values: Sequence[NDArray[np.generic]]) -> ByteRows:
    """Typed columns as rows: bytes (n, count), categories (n,), bags (n, length) padded with `ABSENT`.

    Run by callers who register sources with categories or bags: a browser takes rows. Vectors are made by it.
    """
    rows = []
    for column, given in zip(declared, values, strict=True):
        whole, most = integers(given, "feature"), 255 if isinstance(column, Bytes) else ABSENT
        if whole.size and not 0 <= whole.min() <= whole.max() <= most:  # A cast would make another of it.
            raise NotDeclared(f"a feature of an open column is not within 0 … {most}")
        if isinstance(column, Bytes):
            rows.append(whole.astype(np.uint8))
        else:
            ordered = np.sort(whole.reshape(len(whole), -1), axis=1)
            rows.append(ordered.astype(">u4").view(np.uint8).reshape(len(whole), -1))
    joined = np.concatenate(rows, axis=1)
    check_typed(declared, joined)
    return joined


def check_typed(declared: Sequence[Column], rows: ByteRows) -> None:
    """Refuse typed columns that are not as declared. Run by browsers when a source is registered."""
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != sum(column.width for column in declared):
        raise NotDeclared("open columns have another width than the model declares")
    if not typed(declared, rows)[2].all():
        raise NotDeclared("a category is outside its declared size, or a bag is not in ascending order")


def typed(
    declared: Sequence[Column], rows: ByteRows
) -> tuple[ByteRows, tuple[NDArray[np.uint32], ...], NDArray[np.bool_]]:
    """Byte features, the indices of every other column (n, length), and which rows are as declared."""
    features, indices, valid, at = rows[:, :0], [], np.ones(len(rows), np.bool_), 0
    for column in declared:
        data, at = rows[:, at : at + column.width], at + column.width
        if isinstance(column, Bytes):
            features = data
            continue
        entries = np.ascontiguousarray(data).view(">u4").astype(np.uint32)
        within = entries < np.uint32(column.size)
        if not isinstance(column, Category):
            # One form for a bag: ascending, and filled up at its end.
            within |= entries == np.uint32(ABSENT)
            valid &= (entries[:, 1:] >= entries[:, :-1]).all(axis=1)
        valid &= within.all(axis=1)
        indices.append(entries)
    return features, tuple(indices), valid


def train_columns(
    place: int, model: Model, rows: ByteRows, candidates: Sequence[NDArray[np.int64]]
) -> ByteRows:
    """The open columns of training records: `place` is the model's in the document. Run by browsers."""
    check_typed(model.columns, rows)
    _check_records(candidates, len(rows))
    parts = [np.full((len(rows), 1), place, np.uint8), rows]
    if not isinstance(model.policy, All):
        for space, shown in zip(model.labels, candidates, strict=True):
            places = space.index(shown).astype(f">u{CANDIDATE_BYTES}")
            parts.append(np.ascontiguousarray(places).view(np.uint8))
    return np.concatenate(parts, axis=1)


def candidates_of(model: Model, rows: ByteRows) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    """By label, what every record shows, from the last columns; and which rows the policy allows."""
    if isinstance(model.policy, All):
        return tuple(np.array([space.values], np.int64) for space in model.labels), np.ones(
            len(rows), np.bool_
        )
    shown, allowed, at = [], np.ones(len(rows), np.bool_), 0
    for space, count in _shown(model):
        end = at + CANDIDATE_BYTES * count
        places = np.ascontiguousarray(rows[:, at:end]).view(f">u{CANDIDATE_BYTES}").astype(np.int64)
        at = end
        ordered = np.sort(places, axis=1)
        # What `CandidatePolicy.allows` says of one record: members of the space, all different, 0 among them.
        allowed &= ordered[:, -1] < len(space)
        allowed &= (ordered[:, 1:] > ordered[:, :-1]).all(axis=1)
        allowed &= (places == space.values.index(0)).any(axis=1)
        shown.append(np.array(space.values, np.int64)[np.minimum(places, len(space) - 1)])
    return tuple(shown), allowed


def _check_records(columns: Sequence[Sequence[object] | NDArray[np.int64]], records: int) -> None:
    """Refuse columns of different lengths."""
    if any(len(column) != records for column in columns):
        raise NotDeclared("the columns differ in length: each has one entry per record")
