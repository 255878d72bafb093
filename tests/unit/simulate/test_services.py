"""Ports of services that are about to start."""

import os
import socket

import pytest

from maskedlark.simulate import services


@pytest.fixture
def few(monkeypatch):
    """Few enough that each is drawn again and again; and nothing is known of what was given before."""
    ports = range(14_900, 14_908)
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


def test_those_given_longest_ago_are_given_again(few, monkeypatch):
    monkeypatch.setattr(services, "_REMEMBERED", 2)
    given = [services.free_port() for _ in range(40)]
    assert {*given} == {*few}
    assert all(len({*given[place : place + 3]}) == 3 for place in range(38))
