"""Hostile bytes at every decoder: each input is a message, or ends in an error of ours, and it ends."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.fuzz import decoders, totals, walk
from tests.fuzz.running import Breaks, Decoder, check_examples, fuzz, watched
from tests.fuzz.running import one as run_one

TABLE = decoders.table()


def test_every_decoder_of_the_package_is_in_the_table_or_exempt_for_a_reason():
    found = walk.decoders()
    covered = {name for each in TABLE.values() for name in each.covers}
    assert not found - covered - decoders.EXEMPT.keys(), "a decoder that nobody fuzzes: put it in the table"
    assert not decoders.EXEMPT.keys() - found, "exempt, and not there any more"
    assert not covered - found, "in the table, and not there any more"
    assert not covered & decoders.EXEMPT.keys(), "in the table and exempt"


def test_every_example_is_accepted():
    check_examples([*TABLE.values()])


def test_the_long_run_tries_a_million_inputs():
    planned = sum(map(totals.inputs, TABLE.values())) + sum(totals.REQUESTS.values())
    assert planned + 4 * totals.MIN_DRAWN >= totals.WANTED


@pytest.mark.parametrize("name", TABLE)
def test_hostile_bytes_are_refused_by_errors_of_ours(name):
    ran = fuzz(TABLE[name], 100)
    assert ran.inputs == 100
    assert ran.accepted < 100 or not ran.kinds


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_many_hostile_bytes_are_refused_by_errors_of_ours(name):
    ran = fuzz(TABLE[name], totals.inputs(TABLE[name]))
    totals.ran(ran.name, ran.inputs, ran.seconds, f"{ran.accepted} accepted, {ran.kinds} kinds of refusals")
    assert ran.inputs == totals.inputs(TABLE[name])


@pytest.mark.long
def test_no_depth_of_nesting_breaks_a_decoder():
    """One parser may read what the next cannot write again: every depth around where they give up."""
    wraps = [(b"", b""), (b"[", b"]"), (b'{"documents":[', b'],"more":false}'), (b"a = ", b"")]
    inputs = 0
    for decoder in TABLE.values():
        if decoder.weight < 0.1:
            continue
        with watched():
            for depth in (*range(190, 210), *range(320, 340), *range(930, 1010)):
                for before, behind in wraps:
                    nested = b"[" * depth + b"1" + b"]" * depth
                    run_one(decoder, before + nested + behind, f"{depth} deep")
                    inputs += 1
    totals.ran("nesting", inputs, 0.0, "")


def _broken(data: bytes) -> bytes:
    if data[:1] == b"x":
        raise KeyError("not one of ours")
    return data


def test_an_untyped_error_fails_and_prints_the_input():
    planted = Decoder("planted", (), (b"x1",), _broken)
    with pytest.raises(Breaks, match=r"KeyError: 'not one of ours'\n78"):
        fuzz(planted, 50)


def test_what_is_accepted_in_a_second_form_fails():
    planted = Decoder(
        "planted", (), (b"  1",), lambda data: data.strip(), again=lambda data, found: data == found
    )
    with pytest.raises(Breaks, match="not in its one form"):
        fuzz(planted, 50)


def test_a_hang_fails(monkeypatch):
    monkeypatch.setattr("tests.fuzz.running.WATCHDOG_S", 0.05)

    def hang(data: bytes) -> bytes:
        while data:
            pass
        return data

    with pytest.raises(Breaks, match="Hangs"):
        fuzz(Decoder("planted", (), (b"x1",), hang), 50)


OTHERWISE = {
    "problem document": "one that cannot be read is an error too: of a strange answer",
    "description of a model": "is part of a request, and the test itself reads the text",
}


@pytest.mark.parametrize(
    "name", [name for name, each in TABLE.items() if each.form is None and name not in OTHERWISE]
)
def test_a_key_that_is_given_twice_is_refused(name):
    """Parsers differ in which of two they take: what was checked may not be what is used."""
    for example in TABLE[name].examples[:3]:
        for twice in _twice(example):
            assert run_one(TABLE[name], twice), twice[:200]


def _twice(example: bytes) -> Iterator[bytes]:
    """A message of JSON with the first key of an object written twice: of the whole, or of one inside."""
    with suppress(ValueError, RecursionError):
        whole = json.loads(example)
        found = [*_objects(whole)] if example[:1] in (b"{", b"[") else []
        for each in found[:20]:
            yield _written(whole, each).encode()


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and value:
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def _written(value: Any, twice: dict[str, Any]) -> str:
    if isinstance(value, list):
        return f"[{','.join(_written(each, twice) for each in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    items = [f"{json.dumps(name)}:{_written(each, twice)}" for name, each in value.items()]
    return "{" + ",".join(items[:1] * (value is twice) + items) + "}"
