"""Some schedules with every party's database on a server: PostgreSQL breaks off otherwise than a file."""

from collections.abc import Mapping

import pytest

from tests.databases import empty, fresh_database
from tests.simulation.parties import ORIGINS, SERVICE
from tests.simulation.schedule import draw, run

HOSTS = (SERVICE, *ORIGINS, *(f"helper-{place}.test" for place in range(3)))
FIRST, LONG = 3000, 10
SHORT = 60
# A crash closes nothing: that is its point. psycopg says so of what is left, whenever that is collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*was deleted while still open.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*BaseConnection.__del__.*:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="session")
def servers(_postgresql: str) -> Mapping[str, str]:
    """A database for every party."""
    return {host: fresh_database(_postgresql) for host in HOSTS}


def check(seed: int, servers: Mapping[str, str], length: int) -> None:
    for url in servers.values():
        empty(url)
    found = run(draw(seed, length), servers)
    assert found.operations.total() == length


def test_a_short_schedule_with_databases_on_a_server(servers):
    check(FIRST, servers, SHORT)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(FIRST + 1, FIRST + 1 + LONG))
def test_schedules_with_databases_on_a_server(seed, servers):
    check(seed, servers, 200)
