import json
import logging
import subprocess
import sys

import pytest

from maskedlark.errors import NotDeclared
from maskedlark.web.logs import FIELDS, MAX_TEXT, Formatter, place

SECRET = "planted-5f1d"


def line(message, *args, name="maskedlark.helper.app", level=logging.WARNING, error=None, **extra):
    record = logging.getLogger(name).makeRecord(
        name,
        level,
        "/home/somebody/module.py",
        7,
        message,
        args,
        error and (type(error), error, None),
        "f",
        extra,
    )
    written = Formatter("helper").format(record)
    assert "\n" not in written
    return json.loads(written)


def raised(error):
    try:
        raise error
    except type(error) as found:
        return found


def test_a_line_says_when_who_and_what():
    found = line("%d old keys were deleted", 3)
    moment = found.pop("time")
    assert moment.endswith("Z")
    assert len(moment) == len("2026-01-01T00:00:00.000Z")
    assert found == {
        "level": "WARNING",
        "service": "helper",
        "logger": "maskedlark.helper.app",
        "message": "3 old keys were deleted",
    }


def test_only_fields_of_the_list_are_written():
    found = line("request", route="/v2/keys", status=200, ms=1.5, body=SECRET, client=SECRET, share=[1, 2])
    assert {name: found[name] for name in FIELDS if name in found} == {
        "route": "/v2/keys", "status": 200, "ms": 1.5,
    }  # fmt: skip
    assert SECRET not in json.dumps(found)
    assert "share" not in found


def test_of_anothers_error_only_class_and_place_are_written():
    found = line("it failed", error=raised(ValueError(SECRET)))
    assert found["error"] == "ValueError"
    assert found["at"].startswith(f"{__name__}:")
    assert SECRET not in json.dumps(found)
    assert SECRET not in json.dumps(line("it failed: %s", ValueError(SECRET)))
    assert line("it failed: %s", ValueError(SECRET))["message"] == "it failed: ValueError"


def test_the_words_of_our_own_errors_are_written():
    found = line("it failed", error=raised(NotDeclared("declare it")))
    assert (found["error"], found["reason"]) == ("NotDeclared", "declare it")
    assert line("it failed: %s", NotDeclared("declare it"))["message"] == "it failed: declare it"


def test_the_error_that_caused_ours_is_not_shown():
    with pytest.raises(NotDeclared) as caught:
        raise NotDeclared("declare it") from ValueError(SECRET)
    assert SECRET not in json.dumps(line("it failed", error=caught.value))


@pytest.mark.parametrize("name", ["sqlalchemy.engine", "httpx", "asyncio", "py.warnings", "maskedlarkish"])
def test_a_librarys_words_are_not_written(name):
    found = line(f"GET /?q={SECRET} from %s", SECRET, name=name)
    assert (found["message"], found["at"]) == ("", "module:7")
    assert SECRET not in json.dumps(found)


def test_of_uvicorn_the_sentence_stays_without_what_it_fills_in():
    assert line("%s - gone", SECRET, name="uvicorn.error")["message"] == "%s - gone"
    assert line("Shutting down", name="uvicorn.error")["message"] == "Shutting down"
    # What a failing start hands to uvicorn is a whole traceback.
    assert line(f"Traceback:\n  x\nValueError: {SECRET}", name="uvicorn.error")["message"] == ""
    assert line(OSError(SECRET), name="uvicorn.error")["message"] == ""


def test_bytes_are_counted_and_long_texts_are_cut():
    assert line("took %s", b"payload")["message"] == "took 7 bytes"
    assert len(line("%s", "x" * 10_000)["message"]) == MAX_TEXT
    assert len(line("request", origin="x" * 10_000)["origin"]) == MAX_TEXT


def test_a_line_that_does_not_fit_its_words_is_written_all_the_same():
    assert line("%d of %d", 1)["message"] == "%d of %d"


def test_a_place_is_a_module_and_a_line_behind_the_place_in_our_code():
    with pytest.raises(ValueError, match="property name") as caught:
        json.loads("{")
    assert place(caught.value).startswith("json.decoder:")
    with pytest.raises(ValueError, match="property name") as caught:
        exec("json.loads('{')", {"__name__": "maskedlark.somewhere", "json": json})
    ours, theirs = place(caught.value).split(" > ")
    assert ours == "maskedlark.somewhere:1"
    assert theirs.startswith("json.decoder:")
    assert place(ValueError()) == "an unknown place"


_PROCESS = f"""
import asyncio, logging, sys, threading, warnings
from maskedlark.web import logs
logs.configure("helper", "DEBUG")
logging.getLogger("maskedlark.helper").debug("begun")
logging.getLogger("httpx").info("GET /?{SECRET}")
warnings.warn("{SECRET}")
thread = threading.Thread(target=lambda: int("{SECRET}"))
thread.start(); thread.join()
class Unraisable:
    def __del__(self): raise ValueError("{SECRET}")
Unraisable()
asyncio.run(asyncio.sleep(0))
raise ValueError("{SECRET}")
"""


def test_a_process_writes_nothing_else_not_even_when_it_dies():
    done = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    found = [json.loads(each) for each in done.stderr.splitlines()]
    assert [(each["logger"], each.get("error")) for each in found] == [
        ("maskedlark.helper", None),
        ("py.warnings", None),
        ("maskedlark.web.logs", "ValueError"),
        ("maskedlark.web.logs", "ValueError"),
        ("maskedlark.web.logs", "ValueError"),
    ]
    assert [each["level"] for each in found[2:]] == ["CRITICAL"] * 3


def test_an_interrupt_is_no_error():
    code = "from maskedlark.web import logs; logs.configure('helper'); raise KeyboardInterrupt"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_level_that_is_none_is_our_own_mistake():
    from maskedlark.web import logs

    with pytest.raises(AssertionError, match="a level is one of DEBUG"):
        logs.configure("helper", "LOUD")
