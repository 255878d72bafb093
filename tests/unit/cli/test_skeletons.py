"""The settings that `init` writes: every key there is, each with a value that may stand there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from maskedlark.adserver import config as adserver
from maskedlark.adserver import skeleton as adserver_skeleton
from maskedlark.helper import config as helper
from maskedlark.helper import skeleton as helper_skeleton
from maskedlark.parameter_service import config as parameters
from maskedlark.parameter_service import skeleton as parameters_skeleton
from maskedlark.web import config, skeleton
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY

SERVICE, ORIGIN, *HELPERS = (key.verifying.public.hex() for key in (SERVICE_KEY, DOCUMENT_KEY, *HELPER_KEYS))
WHERE = "https://parameters.example"
SAID = helper_skeleton.Said(
    "helper-0", "https://h.example", WHERE, SERVICE, {"ads.example": ORIGIN}, HELPERS[:2]
)
PARTIES: dict[str, tuple[type[config.PartyConfig], str, str]] = {
    "helper": (
        helper.Config,
        helper_skeleton.text(SAID, HELPERS[0]),
        helper_skeleton.text(helper_skeleton.Said("helper-0", "https://h.example"), None),
    ),
    "adserver": (
        adserver.Config,
        adserver_skeleton.text("ads.example", Path("request.key"), ORIGIN, WHERE, SERVICE),
        adserver_skeleton.text("ads.example", Path("request.key"), ORIGIN),
    ),
    "parameters": (
        parameters.Config,
        parameters_skeleton.text(Path("service.key"), {"ads.example": ORIGIN}, {"helper-0": HELPERS[0]}),
        parameters_skeleton.text(Path("service.key"), {}, {}),
    ),
}


@pytest.fixture(params=PARTIES)
def party(request):
    return PARTIES[request.param]


def tables(form: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model, and those of its tables."""
    yield form
    for field in form.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield field.annotation


def taken_in(text: str) -> str:
    """The text with every setting that was a comment."""
    return re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)


def test_with_all_that_was_said_it_can_be_read(party, tmp_path):
    form, text, _ = party
    (tmp_path / "a.toml").write_text(text)
    config.read(tmp_path / "a.toml", form)


def test_every_setting_that_is_a_comment_may_be_taken_in(party, tmp_path):
    form, text, _ = party
    (tmp_path / "a.toml").write_text(taken_in(text))
    found = config.read(tmp_path / "a.toml", form)
    assert found.model_dump()["serving"]["metrics_port"] == 9100


def test_what_is_a_comment_is_what_happens_without_it(party, tmp_path):
    form, text, _ = party
    found = []
    for name, each in (("a.toml", text), ("b.toml", taken_in(text))):
        (tmp_path / name).write_text(each)
        found.append(config.read(tmp_path / name, form).model_dump())
    plain, whole = found
    # An example where there is no default, or one that nobody would guess.
    for given in plain, whole:
        for table, keys in {
            "": ["anchor", "database", "functions", "workers"],
            "serving": ["port", "certificate", "certificate_key", "drain_s", "metrics_port"],
            "policy": ["whole_label_space"],
        }.items():
            for key in keys:
                (given.get(table, {}) if table else given).pop(key, None)
    assert plain == whole


def test_every_key_is_there(party):
    form, *texts = party
    for text in texts:
        for table in tables(form):
            for name in table.model_fields:
                assert re.search(rf"^(#!? )?(\[{name}\]|{name} = )", text, re.MULTILINE), name


def test_every_key_says_what_it_is_for_with_an_example(party):
    form, *_ = party
    named = [(name, field) for table in tables(form) for name, field in table.model_fields.items()]
    for name, field in named:
        if name in (
            "trusted_helpers",
            "most",
            "most_coalition",
            "least_k",
            "least_helpers",
            "whole_label_space",
        ):
            continue  # Of the policy, which is described as a whole.
        assert field.description, name
        assert f"{name} = " in field.description or f"[{name}]" in field.description, name


def test_no_line_is_too_long_to_read(party):
    for text in party[1:]:
        assert max(len(line) for line in text.splitlines()) <= 110


def test_tables_of_serving_come_last_so_that_lines_can_be_added(party):
    for text in party[1:]:
        assert text.rindex("\n[") < text.index(skeleton.SERVING)
        assert text.endswith(skeleton.SERVING)
