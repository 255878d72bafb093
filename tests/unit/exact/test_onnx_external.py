"""Weights in a file beside the model: read where they are plain, and nothing else is ever opened."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

from maskedlark.exact import onnx_external  # noqa: E402
from maskedlark.exact.errors import ModelDoesNotFit  # noqa: E402
from maskedlark.exact.onnx_model import load, read  # noqa: E402
from tests.unit.exact.exporting import exported_beside  # noqa: E402

NET = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 1))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    exported_beside(NET, (2, 40), path)
    assert (path.parent / "model.onnx.data").stat().st_size >= 4 * 40 * 30, "PyTorch keeps weights apart"
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / name).write_bytes((original.parent / name).read_bytes())
    return tmp_path / "model.onnx"


def changed(path: Path, **entries: str | None) -> None:
    """The same model with other words about where its first external tensor is."""
    model = onnx.load(path, load_external_data=False)
    tensor = next(each for each in model.graph.initializer if each.external_data)
    for key, value in entries.items():
        kept = [entry for entry in tensor.external_data if entry.key != key]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def test_the_default_export_of_pytorch_has_its_weights_bit_by_bit(path: Path) -> None:
    for own, tensor in zip(load(path, ["bce"]).parameters(), NET.parameters(), strict=True):
        assert torch.equal(own, tensor)


def test_bytes_alone_say_where_the_rest_is(path: Path) -> None:
    with pytest.raises(ModelDoesNotFit, match=r"is stored in 'model.onnx.data'; give the path"):
        read(path.read_bytes(), ["bce"])


@pytest.mark.parametrize(
    "location", ["../model.onnx.data", "/etc/passwd", "a/b", "a\\b", "..", ".", "", "C:x", "x\0y"]
)
def test_no_other_folder_is_reached(path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent.parent / "model.onnx.data").write_bytes((path.parent / "model.onnx.data").read_bytes())
    changed(path, location=location)
    opened = list[object]()
    monkeypatch.setattr(os, "open", lambda *given: opened.append(given))
    with pytest.raises(ModelDoesNotFit, match="under a plain name"):
        read(path.read_bytes(), ["bce"], folder=path.parent)
    assert not opened


def test_a_link_is_not_followed(path: Path) -> None:
    data = path.parent / "model.onnx.data"
    data.rename(path.parent / "elsewhere")
    data.symlink_to("elsewhere")
    with pytest.raises(ModelDoesNotFit, match="cannot be read"):
        load(path, ["bce"])


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_refused_and_does_not_hang(path: Path, make: object) -> None:
    data = path.parent / "model.onnx.data"
    data.unlink()
    make(data)  # type: ignore[operator]
    with pytest.raises(ModelDoesNotFit, match=r"is no file|cannot be read"):
        load(path, ["bce"])


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "-4"},
        {"offset": "1e3"},
        {"offset": "9" * 15},
        {"offset": "٣"},
        {"length": "4"},
        {"length": "9999999"},
        {"basepath": "/etc"},
    ],
)
def test_a_range_outside_the_file_or_of_another_size_is_refused(path: Path, entries: dict[str, str]) -> None:
    changed(path, **entries)
    with pytest.raises(ModelDoesNotFit):
        load(path, ["bce"])


def test_a_file_that_lacks_its_end_is_refused(path: Path) -> None:
    data = path.parent / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ModelDoesNotFit, match=r"which has \d+; export them again"):
        load(path, ["bce"])


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_size_is_bounded(path: Path, name: str) -> None:
    with (path.parent / name).open("r+b") as file:
        file.truncate(onnx_external.MAX_BYTES + 1)  # Sparse: it takes no room.
    with pytest.raises(ModelDoesNotFit, match="more than 64 MiB"):
        load(path, ["bce"])


def test_many_tensors_of_one_range_are_bounded_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (path.parent / "model.onnx.data").stat().st_size
    model = onnx.load(path, load_external_data=False)
    tensor = next(each for each in model.graph.initializer if each.external_data)
    for place in range(9):
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = f"more {place}"
    path.write_bytes(model.SerializeToString())
    monkeypatch.setattr(onnx_external, "MAX_BYTES", max(2 * size, path.stat().st_size))
    with pytest.raises(ModelDoesNotFit, match="makes more than"):
        load(path, ["bce"])


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelDoesNotFit, match=r"model.onnx: cannot be read: No such file"):
        load(tmp_path / "model.onnx", ["bce"])
