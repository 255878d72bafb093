import base64
import json

import numpy as np
import pytest

from tests.integration import planted

KEY = bytes(range(200, 232))


@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
@pytest.mark.parametrize(
    "shown",
    [
        lambda data: data,
        lambda data: data.hex().encode(),
        lambda data: data.hex().upper().encode(),
        base64.b64encode,
        base64.urlsafe_b64encode,
        lambda data: repr(data).encode(),
        lambda data: repr([data]).encode(),
        lambda data: json.dumps(list(data)).encode(),
        lambda data: str(np.frombuffer(data, np.uint8).tolist()).encode(),
    ],
)
def test_bytes_are_found_however_and_behind_whatever_they_are_shown(before, shown):
    needles = planted.octets("key", KEY)
    assert planted.found(needles, b"line " + shown(before + KEY + b"!") + b" end") == {"key"}
    assert planted.found(needles, b"line " + shown(before + KEY[::-1] + b"!") + b" end") == set()


@pytest.mark.parametrize("shown", [str, hex, "{:_}".format, "{:,}".format, "{:X}".format])
def test_numbers_are_found(shown):
    needles = planted.number("value", 1_234_567_891)
    assert planted.found(needles, f"({shown(1_234_567_891)})".encode()) == {"value"}
    assert planted.found(needles, f"({shown(1_234_567_892)})".encode()) == set()


def test_arrays_and_texts_are_found():
    shares = np.array([[1 << 60, (1 << 60) + 12345]])
    assert planted.found(planted.numbers("share", shares), repr(shares).encode()) == {"share"}
    assert planted.found(planted.numbers("share", shares), shares.tobytes()) == {"share"}
    assert planted.found(planted.text("word", "planted word"), b"a planted word") == {"word"}
