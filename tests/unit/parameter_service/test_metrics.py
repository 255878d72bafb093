import pytest

from maskedlark.clock import FixedClock
from tests.unit.web.observing import of
from tests.unit.web.service import NOW, Service, configuration


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path / "parameters.db", FixedClock(NOW))
    yield made
    made.store.close()


def test_what_is_published_is_shown(service):
    assert of(service.app, "maskedlark_published") == {("document",): 0, ("keys",): 0}
    service.publish_chain(3)
    service.publisher.publish_keys("helper-0", configuration(0, 1))
    assert of(service.app, "maskedlark_published") == {("document",): 3, ("keys",): 1}
    assert of(service.app, "maskedlark_ready") == {(): 1}


def test_routes_are_declared_paths(service):
    with service.http() as http:
        for path in ("/health", "/v2/keys?helper=helper-0", "/v2/origins/ads.example/documents/1", "/v2/x"):
            http.get(path)
    routes = {route for (route,) in of(service.app, "maskedlark_request_body_bytes_total")}
    assert routes == {"/health", "/v2/keys", "/v2/origins/{origin}/documents/{version}", "other"}
