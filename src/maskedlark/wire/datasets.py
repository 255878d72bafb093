"""Messages between ad server and helper while a dataset is sent, agreed and frozen.

A dataset is sent in chunks, numbered from 0, each a version byte and parts of one size. A helper answers a
chunk when what it accepted is durable; sent again, a chunk gets the same answer. The ad server requests
to freeze what all helpers accepted of every chunk. Everything but chunks and that request is JSON.

    accepted = a bitmap, one bit per part, the first the highest of the first byte; zeros fill the last byte
    freeze   = version (1 byte), digest (a vector, 1 byte of length), bitmaps (vectors, 2 bytes of length)
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, StringConstraints

from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.errors import WrongLength
from maskedlark.wire import binary
from maskedlark.wire.binary import Reader, vector
from maskedlark.wire.errors import BadPadding
from maskedlark.wire.message import Hex16, Hex32, Message
from maskedlark.wire.report import ReportLayout

MAX_DATASET_NAME = 64
MAX_CHUNKS = 1 << 16
MAX_PARTS = 1 << 14
"""Parts of one chunk."""
MAX_EXPANDED = 1 << 24
"""Bytes of one chunk with all shares written out: bounds what a small chunk can make a helper hold."""
PARTS = 2048
"""Parts of a chunk by default."""
CHUNK_TYPE = "application/vnd.maskedlark.parts"
FREEZE_TYPE = "application/vnd.maskedlark.freeze"
JSON_TYPE = "application/json"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_MAX_REASONS = 128
"""Names of errors in one answer: there are fewer."""
_LENGTH_BYTES = 2
_DOMAIN = b"maskedlark v2 dataset"

Bitmap = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=MAX_PARTS // 4)]
DatasetName = Annotated[str, StringConstraints(max_length=MAX_DATASET_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]


class NewDataset(Message):
    """A new dataset: reports of one purpose, made under one document. Sent by the ad server."""

    attempt: Hex16
    """Random, of this attempt to build it. Chunks, freezing and abort name it: none affects a later one."""
    parameters: Hex32
    purpose: Literal["aggregate", "train"]


class ChunkAnswer(Message):
    """Which parts of a chunk were accepted, and how many were not, by the name of the error."""

    max_commas = _MAX_REASONS

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    accepted: Bitmap
    refused: dict[str, Count]


class CheckAnswer(Message):
    """Which parts of a chunk are valid by the numbers of all helpers, and how many that all have are not."""

    valid: Bitmap
    invalid: Annotated[int, Field(ge=0, le=MAX_PARTS)]


class State(Message):
    """The state of a dataset at a helper."""

    max_commas = MAX_CHUNKS + _MAX_REASONS

    name: DatasetName
    attempt: Hex16
    parameters: Hex32
    purpose: Literal["aggregate", "train"]
    state: Literal["open", "frozen", "expired"]
    chunks: Annotated[tuple[Count, ...], FailFast()]
    """The numbers of received chunks, while it is open."""
    received: Count
    accepted: Count
    refused: dict[str, Count]
    digest: Hex32 | None = None
    """Once it is frozen: the same at every helper."""
    records: Count | None = None


@dataclass(frozen=True)
class FreezeRequest:
    """What all helpers accepted, chunk by chunk: the dataset is these records and no others."""

    accepted: tuple[str, ...]
    """Bitmaps, in hexadecimal as in a chunk's answer."""
    digest: str | None = None
    """The digest that this helper must compute too."""

    def encode(self) -> bytes:
        """Binary, not JSON: it is the one long message, and a helper reads it without making objects."""
        digest = bytes.fromhex(self.digest or "")
        bitmaps = [bytes.fromhex(bitmap) for bitmap in self.accepted]
        return binary.VERSION_BYTE + vector(digest, 1) + binary.vectors(bitmaps, _LENGTH_BYTES)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode an optional digest and the bitmaps, of at most as many chunks as a dataset may have."""
        reader = Reader.message(data, "a request to freeze")
        digest = reader.vector(1, 0, 32)
        if len(digest) not in (0, 32):
            raise WrongLength(f"a digest has 32 bytes, not {len(digest)}")
        bitmaps = reader.vectors(_LENGTH_BYTES, MAX_CHUNKS, MAX_PARTS // 8)
        return cls(tuple(bitmap.hex() for bitmap in bitmaps), digest.hex() or None)


class Frozen(Message):
    """A frozen dataset and its receipt."""

    digest: Hex32
    records: Count
    receipt: str


def encode_chunk(parts: ByteRows) -> bytes:
    """The body of a chunk. Run by the ad server."""
    return binary.VERSION_BYTE + parts.tobytes()


def max_parts(layout: ReportLayout) -> int:
    """How many parts of these reports a chunk may have. Other helpers' shares expand to those of helper 0."""
    return max(1, min(MAX_PARTS, MAX_EXPANDED // layout.part_size(0)))


def decode_chunk(body: bytes, size: int, most: int = MAX_PARTS) -> bytes:
    """The parts of a chunk, 1 to `most` of this size, one after the other. Run by helpers."""
    reader = Reader.message(body, "a chunk")
    if reader.left % size or not size <= reader.left <= most * size:
        raise WrongLength(f"a chunk of this dataset has 1 to {most} parts of {size} bytes")
    return body[1:]


def pack(accepted: NDArray[np.bool_]) -> str:
    """A bitmap of a chunk's parts."""
    return np.packbits(accepted).tobytes().hex()


def unpack(bitmap: str, parts: int) -> NDArray[np.bool_]:
    """The parts that a bitmap marks. Refuses one of another length."""
    data = np.frombuffer(bytes.fromhex(bitmap), np.uint8)
    if len(data) != -(-parts // 8):
        raise WrongLength(f"a bitmap of {len(data)} bytes for {parts} parts")
    bits = np.unpackbits(data)
    if bits[parts:].any():
        raise BadPadding("a bitmap with bits after its last part")
    return bits[:parts].astype(np.bool_)


class DatasetDigest:
    """A dataset's digest: of its origin, document, purpose, and the heads of its reports by id."""

    def __init__(self, origin: str, parameters: bytes, purpose: Purpose) -> None:
        self._hashed = hashlib.sha256(_DOMAIN)
        for part in (origin.encode(), parameters, purpose.encode()):
            self._hashed.update(len(part).to_bytes(4, "big") + part)

    def update(self, reports: ByteRows) -> None:
        """Add the next heads, in the order of ids, which are unique and so define it."""
        self._hashed.update(np.ascontiguousarray(reports).data)

    def digest(self) -> bytes:
        """The digest of all added so far."""
        return self._hashed.digest()


def digest(origin: str, parameters: bytes, purpose: Purpose, reports: ByteRows) -> bytes:
    """A dataset's digest, of all its reports in any order."""
    hashed = DatasetDigest(origin, parameters, purpose)
    order = np.argsort(np.ascontiguousarray(reports[:, :ID_BYTES]).view(f"S{ID_BYTES}").ravel())
    hashed.update(reports[order])
    return hashed.digest()
