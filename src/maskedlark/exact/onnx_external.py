"""Weights that an ONNX file keeps in another file beside it, as PyTorch exports them. Run by the ad server.

Strict: a plain name in the model's own folder, a regular file, a range inside it of exactly the tensor's
size, and no more than `MAX_BYTES` in all. Nothing else is ever opened.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from maskedlark.exact.errors import ModelDoesNotFit

MAX_BYTES = 1 << 26
"""Of a model, and of its weights: several times what a request has room for."""
_KEYS = {"location", "offset", "length", "checksum"}


def read_file(path: Path) -> bytes:
    """A regular file of at most `MAX_BYTES`."""
    try:
        # No link, and no device or pipe that would never end.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise ModelDoesNotFit(str(path), f"cannot be read: {error.strerror}; put the file there") from None
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode):
        os.close(opened)
        raise ModelDoesNotFit(str(path), "is no file; give the file itself")
    with os.fdopen(opened, "rb") as file:
        if status.st_size > MAX_BYTES:
            raise ModelDoesNotFit(str(path), f"has more than {MAX_BYTES >> 20} MiB; make the model smaller")
        return file.read(MAX_BYTES)


def embed(model: ModelProto, folder: Path | None) -> None:
    """Put every tensor that is stored elsewhere into the model, in place."""
    files: dict[str, bytes] = {}
    size = 0
    for tensor in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = _where(tensor)
        location = where["location"]
        if folder is None:
            raise ModelDoesNotFit(tensor.name, f"is stored in {location!r}; give the path of the model file")
        if location not in files:
            files[location] = read_file(folder / location)
        data = _part(tensor, files[location], where)
        size += len(data)
        if size > MAX_BYTES:
            raise ModelDoesNotFit(tensor.name, f"makes more than {MAX_BYTES >> 20} MiB; make it smaller")
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = data


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def _where(tensor: TensorProto) -> dict[str, str]:
    """The entries that say where it is; its file by a plain name."""
    # What is no UTF-8 comes as bytes: as a text it is no file's name.
    where = {str(entry.key): str(entry.value) for entry in tensor.external_data}
    name = where.get("location", "")
    plain = bool(name) and name not in (".", "..") and not set(name) & set("/\\\0:")
    if len(where) != len(tensor.external_data) or set(where) - _KEYS or not plain:
        raise ModelDoesNotFit(
            tensor.name,
            f"is stored in {name!r}; keep weights in one file beside the model, under a plain name",
        )
    return where


def _part(tensor: TensorProto, data: bytes, where: dict[str, str]) -> bytes:
    """The tensor's own bytes: exactly as many as its shape and type take."""
    try:
        own = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError, ValueError):
        raise ModelDoesNotFit(tensor.name, "is damaged; export the model again") from None
    for size in tensor.dims:
        own *= max(size, 0)
    start, length = (_number(tensor, where.get(key)) for key in ("offset", "length"))
    start, length = start or 0, own if length is None else length
    if length != own or start + own > len(data):
        raise ModelDoesNotFit(
            tensor.name,
            f"takes {own} bytes of {where['location']!r}, which has {len(data)}; export them again",
        )
    return data[start : start + own]


def _number(tensor: TensorProto, text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ModelDoesNotFit(tensor.name, f"begins or ends at {text[:16]!r}; export the model again")
    return None if text is None else int(text)
