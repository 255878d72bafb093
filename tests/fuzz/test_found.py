"""Inputs that fuzzing found, each once answered with an untyped error. Named for what is wrong with them."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from maskedlark.cli.query import parse_where
from maskedlark.errors import BadArguments, InvalidDocument
from maskedlark.exact import onnx_model
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.functions.cells import Cells
from maskedlark.functions.model import describe
from maskedlark.helper import chunk_file
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.errors import DamagedDataset
from maskedlark.parameter_service import config
from maskedlark.parameters.drafting import draft
from maskedlark.web import request_signature
from maskedlark.web.errors import BadConfig, UnsignedRequest
from maskedlark.wire.decrypt import decrypt_parts
from tests.fuzz import decoders
from tests.fuzz.asking import Asking, Sent, check
from tests.fuzz.of_documents import FIRST
from tests.fuzz.of_files import DRAFT, PARAMETERS
from tests.fuzz.of_functions import NETWORK
from tests.fuzz.of_web import head_of, signed_request
from tests.fuzz.of_wire import _opener, part_of
from tests.fuzz.services import SERVICES
from tests.unit.parameters.cases import DOCUMENT_KEY, REQUEST_KEY
from tests.unit.web.service import NOW

DEEP = "[" * 2000
DIGITS = "0x" + "f" * 5000
"""More decimal digits than Python makes a text of."""


@pytest.fixture
def chunk(tmp_path: Path) -> Path:
    """The file of a chunk with three records of a model."""
    return tmp_path / chunk_file.write(LocalFiles(tmp_path), decrypt_parts(_opener(0), part_of(0) * 3))


def change_directory(path: Path, at: int, byte: int) -> None:
    """Replace one byte of the zip's last directory entry: checksums are of contents, not of these."""
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\1\2") + at] = byte
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "byte"),
    [(6, 186), (8, 1), (10, 99), (46, ord("z"))],
    ids=["a later version", "encrypted", "packed in an unknown way", "another name"],
)
def test_a_chunk_whose_directory_changed_is_damaged(chunk, at, byte):
    declared: Any = _opener(0).layout.declared[0]
    kept = np.ones(3, np.bool_)
    chunk_file.read(LocalFiles(chunk.parent), chunk.name, kept, {declared.tag: declared})
    change_directory(chunk, at, byte)
    with pytest.raises(DamagedDataset, match="damaged"):
        chunk_file.read(LocalFiles(chunk.parent), chunk.name, kept, {declared.tag: declared})


def test_a_chunk_that_lacks_an_array_is_damaged(chunk):
    with np.load(chunk) as arrays:
        kept = {name: array for name, array in arrays.items() if name != "0-shares"}
    with chunk.open("wb") as file:
        np.savez(file, **kept)
    assert "0-shares.npy" not in zipfile.ZipFile(chunk).namelist()
    declared: Any = _opener(0).layout.declared[0]
    with pytest.raises(DamagedDataset, match="damaged"):
        chunk_file.read(LocalFiles(chunk.parent), chunk.name, np.ones(3, np.bool_), {declared.tag: declared})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (DEEP, "nested deeper"),
        (DIGITS, "a number or a list that no document"),
        ("9" * 5000, "no TOML: Exceeds the limit"),
    ],
)
def test_settings_of_no_sensible_depth_or_length_are_no_draft(value, said):
    with pytest.raises(InvalidDocument, match=said):
        draft(f"k = {value}\n{DRAFT}", DOCUMENT_KEY.verifying, REQUEST_KEY.verifying, None, NOW)


@pytest.mark.parametrize(
    ("value", "said"), [(DEEP, "nested deeper"), (DIGITS, "a number or a list that no setting")]
)
def test_settings_of_no_sensible_depth_or_length_are_no_configuration(tmp_path, value, said):
    (tmp_path / "parameters.toml").write_text(f"extra = {value}\n{PARAMETERS}")
    with pytest.raises(BadConfig, match=said):
        config.read(tmp_path / "parameters.toml")


def test_a_filter_takes_more_digits_than_a_number_may_have_as_text():
    digits = "9" * 5000
    assert parse_where([f"place={digits},7"]) == {"place": [digits, "7", 7]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_query_that_is_no_text_behind_a_path_with_one_slash_too_many_is_not_found(name, tmp_path):
    """To redirect it, the query would be decoded."""
    with SERVICES[name](tmp_path) as service, Asking(service.app) as asking:
        sent = Sent("GET", b"/health/", b"a=\xa6\xc0", (), b"")
        got = asking.ask(sent)
        check(sent, got)
        assert got.status == 404


def test_a_method_that_is_not_ascii_is_not_signed():
    head = signed_request().replace(b"POST", b"POST\xfc\xcd", 1)
    with pytest.raises(UnsignedRequest, match="the method"):
        request_signature.read(*head_of(head))


def test_a_tensor_of_a_type_that_onnx_does_not_know_is_damaged():
    model = onnx.load_from_string(decoders.table()["ONNX model"].examples[0])
    model.graph.initializer[0].data_type = -25
    with pytest.raises(ModelDoesNotFit, match="damaged"):
        onnx_model.read(model.SerializeToString(), ["bce"])


def test_weights_that_are_not_ascii_are_refused():
    arguments = {
        "tag": "clicks",
        "model": json.loads(describe(NETWORK).model_dump_json()),
        "weights": "é",
        "tables": [{"cells": {"kind": "largest", "count": 1}}],
    }
    with pytest.raises(BadArguments, match="base64"):
        Cells().ask(FIRST, arguments)


def test_a_file_of_weights_whose_name_is_no_text_is_refused():
    decoder = decoders.table()["ONNX model with weights beside it"]
    with pytest.raises(ModelDoesNotFit, match="under a plain name"):
        decoder.decode(decoder.examples[0].replace(b"weights", b"we\xffghts"))
