"""Settings that are read again: what is used at once, what later, and what never."""

import logging
from functools import partial

import pytest
from fastapi import FastAPI

from maskedlark.adserver import config
from maskedlark.web import reloading
from tests.unit.adserver.measuring import CONFIG


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "adserver.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def used():
    return []


@pytest.fixture
def reload(file, used):
    app = FastAPI()
    app.state.set_limits = used.append
    return partial(reloading.reload, lambda: config.read(file), dict(config.read(file)), app)


def test_new_limits_are_used_and_said(reload, file, used, caplog):
    caplog.set_level(logging.INFO)
    reload()
    assert (used, caplog.text) == ([], "")
    file.write_text(f"{CONFIG}[limits]\nbody_bytes = 5000\n")
    reload()
    reload()
    assert [each.body_bytes for each in used] == [5000]
    assert "body_bytes=5000" in caplog.text


def test_what_needs_a_restart_is_named_and_not_used(reload, file, used, caplog):
    file.write_text(f"keep_days = 9\n{CONFIG}[serving]\nidle_s = 3\n")
    reload()
    assert used == []
    assert "used after a restart: keep_days, serving" in caplog.text


@pytest.mark.parametrize("wrong", ["[limits]\nbody_bytes = 1\n", "colour = 1\n", "[", None])
def test_settings_that_are_wrong_change_nothing_and_are_logged(reload, file, used, caplog, wrong):
    if wrong is None:
        file.unlink()
    else:
        file.write_text(CONFIG + wrong)
    reload()
    assert used == []
    assert "the settings stay as they were: " in caplog.text
