"""The settings that `init` writes: every key there is, each with a value that may stand there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from maskedlark.adserver import config as adserver
from maskedlark.helper import config as helper
from maskedlark.parameter_service import config as parameters
from maskedlark.web import config
from tests.unit.cli import settings_tables
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY

SERVICE, ORIGIN, *HELPERS = (key.verifying.public.hex() for key in (SERVICE_KEY, DOCUMENT_KEY, *HELPER_KEYS))
WHERE = "https://parameters.example"
SAID = helper.InitOptions(
    "helper-0", "https://h.example", WHERE, SERVICE, {"ads.example": ORIGIN}, HELPERS[:2]
)
PARTIES: dict[str, tuple[type[config.PartyConfig], str, str]] = {
    "helper": (
        helper.Config,
        SAID.skeleton_text(HELPERS[0]),
        helper.InitOptions("helper-0", "https://h.example").skeleton_text(None),
    ),
    "adserver": (
        adserver.Config,
        adserver.skeleton_text("ads.example", Path("request.key"), ORIGIN, WHERE, SERVICE),
        adserver.skeleton_text("ads.example", Path("request.key"), ORIGIN),
    ),
    "parameters": (
        parameters.Config,
        parameters.skeleton_text(Path("service.key"), {"ads.example": ORIGIN}, {"helper-0": HELPERS[0]}),
        parameters.skeleton_text(Path("service.key"), {}, {}),
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
    """The text with every setting that was a comment, but a cluster's address, which no other engine has."""
    return re.sub(r"^# (?=\w+ = )(?!address)", "", text, flags=re.MULTILINE)


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
            "": ["anchor", "database", "functions"],
            "compute": ["workers", "storage"],
            "serving": [
                "port",
                "certificate",
                "certificate_key",
                "drain_s",
                "metrics_port",
                "trusted_proxies",
            ],
            "policy": ["whole_label_space", "checked_reports", "min_fake_rate"],
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
        assert field.description, name
        assert f"{name} = " in field.description or f"[{name}]" in field.description, name


def test_no_line_is_too_long_to_read(party):
    for text in party[1:]:
        assert max(len(line) for line in text.splitlines()) <= 110


def test_tables_of_serving_come_last_so_that_lines_can_be_added(party):
    for text in party[1:]:
        assert text.rindex("\n[") == text.index("\n[serving]")


def test_what_has_to_be_filled_in_is_marked_and_nothing_else(party):
    form, whole, bare = party
    assert "\n#!" not in whole
    for name, field in form.model_fields.items():
        marked = re.search(rf"^#! {name} = |^\[{name}\].*\n#!", bare, re.MULTILINE)
        assert not marked or field.is_required() or name in ("origins", "helpers"), name


def test_required_settings_come_first(party):
    form, text, _ = party
    own = text.partition("\n[")[0]
    said = [name for name in re.findall(r"^#? ?(\w+) = ", own, re.MULTILINE) if name in form.model_fields]
    required = [form.model_fields[name].is_required() for name in said]
    assert required == sorted(required, reverse=True)


def test_the_tables_of_the_operators_page_are_those_of_the_models():
    """If not: `python -m tests.unit.cli.settings_tables` writes them."""
    page = settings_tables.PAGE.read_text()
    assert [place[1] for place in settings_tables.PLACE.finditer(page)] == [*settings_tables.TABLES]
    assert settings_tables.rewritten(page) == page
