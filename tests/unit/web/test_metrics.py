from importlib.metadata import version

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import error_responses, metrics
from maskedlark.web.metrics import LazyGauge
from tests.unit.web.observing import of, samples


@pytest.fixture
def app():
    made = FastAPI()
    error_responses.install(made)
    metrics.install(made, "helper")
    return made


def test_every_app_has_a_registry_of_its_own(app):
    other = FastAPI()
    metrics.install(other, "helper")
    assert isinstance(app.state.metrics, CollectorRegistry)
    assert other.state.metrics is not app.state.metrics


def test_what_runs_is_shown(app):
    assert of(app, "maskedlark_build_info") == {("helper", version("maskedlark")): 1}
    names = {name for name, _ in samples(app)}
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= names


def test_the_page_is_no_route_of_the_app(app):
    assert not [each for each in app.routes if "metrics" in getattr(each, "path", "")]


def test_what_is_looked_up_is_looked_up_at_every_page(app):
    found: dict[tuple[str, ...], float] = {("open",): 1.0}
    LazyGauge("maskedlark_datasets", "By state.", ("state",), lambda: found, app.state.metrics)
    assert of(app, "maskedlark_datasets") == {("open",): 1}
    found[("open",)] = 2.0
    assert of(app, "maskedlark_datasets") == {("open",): 2}


@pytest.mark.parametrize("error", [StorageUnavailable("away"), OSError("gone")])
def test_what_cannot_be_looked_up_is_left_out_and_the_page_comes(app, error):
    def away():
        raise error

    LazyGauge("maskedlark_datasets", "By state.", ("state",), away, app.state.metrics)
    metrics.ready(away, app.state.metrics)
    assert of(app, "maskedlark_datasets") == {}
    assert of(app, "maskedlark_ready") == {(): 0}


def test_room_on_the_disk_is_shown(app):
    metrics.disk(lambda: (5, 2, 3), app.state.metrics)
    metrics.ready(lambda: None, app.state.metrics)
    assert of(app, "maskedlark_disk_free_bytes") == {(): 3}
    assert of(app, "maskedlark_disk_total_bytes") == {(): 5}
    assert of(app, "maskedlark_ready") == {(): 1}
