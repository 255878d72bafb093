"""Ports of services that are about to start."""

import errno
import os
import socket

import pytest

from maskedlark.simulate import services
from maskedlark.web.errors import ServiceAway


@pytest.fixture
def few(monkeypatch):
    """Few enough that each is drawn again and again; and nothing is known of what was given before."""
    first = 13_000 + 8 * (os.getpid() % 200)  # Not those of another process, which runs these tests too.
    ports = range(first, first + 8)
    monkeypatch.setattr(services, "PORTS", ports)
    monkeypatch.setattr(services, "_GIVEN", given := type(services._GIVEN)())
    yield ports
    for each in given:
        os.close(each)


def test_no_port_is_given_twice_before_anybody_listens_on_it(few):
    """Two simulations that started at once got the same, and one of them ended."""
    assert {services.free_port() for _ in few} == {*few}


def test_a_port_where_somebody_listens_is_not_given(few):
    with socket.create_server(("127.0.0.1", few[3])):
        assert {services.free_port() for _ in few[1:]} == {*few} - {few[3]}


def test_where_none_is_free_it_says_so(few):
    for _ in few:
        services.free_port()
    with pytest.raises(ServiceAway, match=rf"every port from {few[0]} to {few[-1]} is in use: stop what"):
        services.free_port()


def test_an_error_that_another_port_does_not_mend_is_raised(few, monkeypatch):
    """Too many open files, say: it tried again and again, without a word."""

    def fail(*_):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socket, "create_server", fail)
    with pytest.raises(OSError, match="too many open files"):
        services.free_port()


def test_those_given_longest_ago_are_given_again(few, monkeypatch):
    monkeypatch.setattr(services, "_REMEMBERED", 2)
    given = [services.free_port() for _ in range(40)]
    assert {*given} == {*few}
    assert all(len({*given[place : place + 3]}) == 3 for place in range(38))
