"""JSON values off the wire: bounded before they are parsed, and refused without their content."""

import json

import pytest

from maskedlark.errors import BadArguments, InvalidDocument
from maskedlark.parameters.chain import Envelope
from maskedlark.release.messages import Request, SessionRequest

READ = {Request: BadArguments, SessionRequest: BadArguments, Envelope: InvalidDocument}


@pytest.mark.parametrize("form", READ)
def test_a_flood_is_refused_by_its_own_error_before_it_is_parsed(monkeypatch, form):
    monkeypatch.setattr(form, "model_validate_json", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(READ[form], match="commas"):
        form.decode(b"[" + b"0," * (form.max_commas + 1) + b"0]")


@pytest.mark.parametrize("form", READ)
def test_what_is_wrong_is_said_and_not_what_came(form):
    with pytest.raises(READ[form]) as raised:
        form.decode(json.dumps({"no\x1b[31m plain name": 1, "datasets": "a secret", "document": 7}).encode())
    assert "secret" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_a_signed_document_of_many_unknown_keys_says_how_many():
    flood = json.dumps(dict.fromkeys(map(str, range(2000)), 0)).encode()
    with pytest.raises(InvalidDocument, match="2003 things are wrong"):
        Envelope.decode(flood)


TWICE = ['{"noise":2,"noise":2}', '{"a":{"b":[{"noise":1.0,"noise":2.0}]}}', '{"no\\u0069se":1,"noise":2}']


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize("text", TWICE)
def test_a_key_that_is_given_twice_is_refused_at_any_depth(form, text):
    with pytest.raises(READ[form], match="noise: this key is given twice"):
        form.decode(text.encode())


@pytest.mark.parametrize("name", ["\x1b[31m", "a secret"])
def test_of_a_key_that_is_given_twice_only_a_plain_name_is_said(name):
    with pytest.raises(BadArguments) as raised:
        Request.decode(f"{{{json.dumps(name)}:1,{json.dumps(name)}:1}}".encode())
    assert str(raised.value) == "this key is given twice"


def test_numbers_that_python_does_not_read_hide_no_key_that_is_given_twice():
    with pytest.raises(BadArguments, match="given twice"):
        Request.decode(b'{"arguments":' + b"9" * 5000 + b',"a":1,"a":2}')
