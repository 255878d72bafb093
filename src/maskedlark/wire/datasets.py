"""What crosses the line between ad server and helper while a dataset is sent, agreed and sealed.

A dataset is sent in chunks, numbered from 0, each a batch of parts (framed as uploads are). A helper answers
a chunk when what it took is durable; sent again, a chunk gets the same answer. The ad server keeps of every
chunk what all helpers accepted, and seals with that. Everything but chunks is JSON.

    accepted = a bitmap, one bit a part, the first the highest of the first byte; zeros fill up the last byte
"""

import hashlib
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import BadPadding, WrongLength, WrongType

MOST_DATASET_NAME = 64
MOST_CHUNKS = 1 << 16
MOST_PARTS = 1 << 14
"""Parts of one chunk."""
PARTS = 2048
"""Parts of a chunk, unless something else is wanted."""
CHUNK_TYPE = "application/vnd.maskedlark.parts"
JSON_TYPE = "application/json"
_DOMAIN = b"maskedlark v1 dataset"

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Bitmap = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=MOST_PARTS // 4)]
DatasetName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MOST_DATASET_NAME, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
]
Count = Annotated[int, Field(ge=0, le=1 << 53)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> bytes:
        """JSON for the wire."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Off the wire. Says what is wrong and where, never what stood there."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise WrongType("; ".join(faults)) from None


class Opening(_Message):
    """A new dataset: reports of one purpose, made under one document. Sent by the ad server."""

    parameters: Hex32
    purpose: Literal["aggregate", "train"]


class ChunkAnswer(_Message):
    """Which parts of a chunk were accepted, and how many were not, by the name of the error."""

    parts: Annotated[int, Field(ge=1, le=MOST_PARTS)]
    accepted: Bitmap
    refused: dict[str, Count]


class State(_Message):
    """Where a dataset stands at a helper."""

    name: DatasetName
    parameters: Hex32
    purpose: Literal["aggregate", "train"]
    state: Literal["open", "sealed", "expired"]
    chunks: tuple[Count, ...]
    """The numbers of those that were received, while it is open."""
    received: Count
    accepted: Count
    refused: dict[str, Count]
    digest: Hex32 | None = None
    """Of a sealed one: the same at every helper."""
    records: Count | None = None


class Sealing(_Message):
    """What all helpers accepted, chunk by chunk: the dataset is these records and no others."""

    accepted: Annotated[tuple[Bitmap, ...], Field(max_length=MOST_CHUNKS)]
    digest: Hex32 | None = None
    """What another helper found: this one must find the same."""


class Sealed(_Message):
    """A sealed dataset, and the receipt that says so."""

    digest: Hex32
    records: Count
    receipt: str


def pack(accepted: NDArray[np.bool_]) -> str:
    """A bitmap of a chunk's parts."""
    return np.packbits(accepted).tobytes().hex()


def unpack(bitmap: str, parts: int) -> NDArray[np.bool_]:
    """The parts that a bitmap names. Refuses one of another length."""
    data = np.frombuffer(bytes.fromhex(bitmap), np.uint8)
    if len(data) != -(-parts // 8):
        raise WrongLength(f"a bitmap of {len(data)} bytes for {parts} parts")
    bits = np.unpackbits(data)
    if bits[parts:].any():
        raise BadPadding("a bitmap with bits behind its last part")
    return bits[:parts].astype(np.bool_)


def digest(origin: str, parameters: bytes, purpose: Purpose, ids: ByteRows) -> bytes:
    """The name of a dataset: whose it is, what for, and exactly which reports it holds, in any order."""
    ordered = np.sort(np.ascontiguousarray(ids).view("S16").ravel()) if len(ids) else np.empty(0, "S16")
    found = hashlib.sha256(_DOMAIN)
    for part in (origin.encode(), parameters, purpose.encode()):
        found.update(len(part).to_bytes(4, "big") + part)
    found.update(ordered.tobytes())
    return found.digest()
