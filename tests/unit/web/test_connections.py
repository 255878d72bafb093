"""Whom we wait for, how long, and who goes when there are too many."""

import inspect
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from maskedlark.web.connections import (
    BODY_GRACE_S,
    LEAST_RATE,
    MAX_UNREAD,
    READ_WITHIN_S,
    Awaited,
    ConnectionLimiter,
)
from tests.unit.web.timing import Time

IDLE_S = 10.0


class Peer:
    """A connection that remembers that it was cut."""

    def __init__(self, unread=0):
        self.is_cut = False
        self._unread = unread

    def abort(self):
        self.is_cut = True

    def get_write_buffer_size(self):
        return self._unread


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def waiting(time):
    return ConnectionLimiter(3, IDLE_S, time)


def come(waiting, *peers):
    for each in peers:
        waiting.add(each)
    return peers


def aborted(peers):
    return [each.is_cut for each in peers]


def test_a_connection_that_asks_nothing_is_cut_in_time_and_what_it_sends_gives_it_no_more(waiting, time):
    silent, dripping = come(waiting, Peer(), Peer())
    for _ in range(10):
        time.now += 1
        waiting.wait(dripping, Awaited.HEAD)
        waiting.sweep()
    assert aborted([silent, dripping]) == [False, False]
    time.now += 0.1
    waiting.sweep()
    assert aborted([silent, dripping]) == [True, True]
    assert len(waiting) == 0


def test_an_answer_begins_the_time_anew_and_none_runs_while_it_is_our_turn(waiting, time):
    (peer,) = come(waiting, Peer())
    time.now += 9
    waiting.wait(peer, None)
    time.now += 1000
    waiting.sweep()
    assert not peer.is_cut
    waiting.wait(peer, Awaited.HEAD)
    time.now += 10
    waiting.sweep()
    assert not peer.is_cut
    time.now += 1
    waiting.sweep()
    assert peer.is_cut


def test_an_answer_is_read_in_time_or_not_at_all(waiting, time):
    (peer,) = come(waiting, Peer())
    waiting.wait(peer, Awaited.READING)
    time.now += READ_WITHIN_S
    waiting.sweep()
    assert not peer.is_cut
    time.now += 1
    waiting.sweep()
    assert peer.is_cut


def test_how_long_a_body_takes_is_for_its_reader_to_say(waiting, time):
    (peer,) = come(waiting, Peer())
    waiting.wait(peer, Awaited.BODY)
    time.now += 1000
    waiting.sweep()
    assert not peer.is_cut


@pytest.mark.parametrize("owed", [each for each in Awaited if each is not Awaited.BODY])
def test_of_those_that_owe_the_same_who_keeps_us_waiting_longest_goes(waiting, time, owed):
    peers = come(waiting, Peer(), Peer(), Peer())
    for place in (2, 0, 1):
        time.now += 1
        waiting.wait(peers[place], None)
        waiting.wait(peers[place], owed)
    for cut in ([False, False, True], [True, False, True], [True, True, True]):
        waiting.wait(come(waiting, Peer())[0], None)
        assert aborted(peers) == cut
    assert len(waiting) == 3


def test_who_has_sent_nothing_goes_first_and_who_does_not_read_last(time):
    waiting = ConnectionLimiter(len(Awaited), IDLE_S, time)
    peers = dict(zip(reversed(Awaited), come(waiting, *(Peer() for _ in Awaited)), strict=True))
    for owed, each in peers.items():
        time.now += 0.1
        waiting.wait(each, owed)
    time.now += BODY_GRACE_S
    waiting.sweep()
    for place, owed in enumerate(Awaited):
        assert not peers[owed].is_cut
        waiting.wait(come(waiting, Peer())[0], None)
        assert aborted(peers[each] for each in Awaited) == [each <= place for each in range(len(Awaited))]


def test_a_flood_of_silent_ones_ends_none_that_sends(waiting, time):
    head, body = come(waiting, Peer(), Peer())
    waiting.wait(head, Awaited.HEAD)
    waiting.wait(body, Awaited.BODY)
    for _ in range(1500):
        time.now += 0.1
        silent = come(waiting, Peer())[0]
        waiting.received(body, LEAST_RATE // 10)
        waiting.wait(head, None)
        waiting.wait(head, Awaited.HEAD)
        waiting.sweep()
        assert (head.is_cut, body.is_cut, silent.is_cut) == (False, False, False)
    assert len(waiting) == 3


def test_a_body_that_makes_progress_is_never_cut_and_a_newcomer_is_one_too_many(waiting, time):
    fast, slow, burst = peers = come(waiting, Peer(), Peer(), Peer())
    for each in peers:
        waiting.wait(each, Awaited.BODY)
    waiting.received(burst, 100 * LEAST_RATE)  # It buys no more time than the grace.
    for _ in range(10 * int(BODY_GRACE_S)):
        time.now += 0.1
        waiting.sweep()
        (newcomer,) = come(waiting, Peer())
        assert aborted(peers) == [False, False, False]
        assert len(waiting) == waiting.most + 1
        waiting.remove(newcomer)
        waiting.received(fast, LEAST_RATE // 10)
        waiting.received(slow, 1)
    time.now += 0.1
    waiting.sweep()
    waiting.received(burst, LEAST_RATE)  # After the sweep, and in time for the newcomer.
    come(waiting, Peer(), Peer())
    assert aborted(peers) == [False, True, False]


def test_a_first_byte_gains_no_time(waiting, time):
    (peer,) = come(waiting, Peer())
    time.now += 9
    waiting.wait(peer, Awaited.HEAD)
    time.now += 1.1
    waiting.sweep()
    assert peer.is_cut


def test_nobody_we_work_for_is_cut_and_one_too_many_is_the_next_to_go(waiting):
    working = come(waiting, Peer(), Peer(), Peer())
    for each in working:
        waiting.wait(each, None)
    first, second = come(waiting, Peer(), Peer())
    assert not any(aborted(working))
    assert aborted([first, second]) == [True, False]
    assert len(waiting) == waiting.most + 1


def test_who_left_or_was_cut_does_not_come_back(waiting):
    gone, other = come(waiting, Peer(), Peer())
    waiting.remove(gone)
    waiting.remove(gone)
    waiting.wait(gone, Awaited.HEAD)
    assert len(waiting) == 1
    come(waiting, Peer(), Peer(), Peer())
    assert aborted([gone, other]) == [False, True]


def test_too_much_that_is_not_read_goes_before_its_time_longest_first(waiting, time):
    peers = come(waiting, *(Peer(MAX_UNREAD // 2) for _ in range(3)))
    for each in (peers[1], peers[0], peers[2]):
        time.now += 1
        waiting.wait(each, Awaited.READING)
    waiting.sweep()
    assert aborted(peers) == [False, True, False]
    waiting.sweep()
    assert aborted(peers) == [False, True, False]


def test_uvicorn_has_what_connections_and_serving_build_on():
    # pyproject.toml bounds the release; what these do is tested in test_serving.py.
    relied_on: dict[type, dict[str, list[str]]] = {
        H11Protocol: {
            "__init__": ["config", "server_state", "app_state", "_loop"],
            "connection_made": ["transport"],
            "connection_lost": ["exc"],
            "data_received": ["data"],
            "handle_events": [],
            "on_response_complete": [],
            "pause_writing": [],
            "resume_writing": [],
            "send_400_response": ["msg"],
            "shutdown": [],
            "_unset_keepalive_if_required": [],
        },
        uvicorn.Server: {
            "startup": ["sockets"],
            "handle_exit": ["sig", "frame"],
            "on_tick": ["counter"],
            "shutdown": ["sockets"],
            "run": ["sockets"],
        },
    }
    for owner, methods in relied_on.items():
        for name, parameters in methods.items():
            assert list(inspect.signature(getattr(owner, name)).parameters)[1:] == parameters, name
    config = uvicorn.Config(lambda: None, log_config=None)
    server = uvicorn.Server(config)
    assert {"default_headers", "connections"} <= vars(server.server_state).keys()
    assert isinstance(server.should_exit, bool)
    connection = H11Protocol(config, server.server_state, {}, _loop=Mock())
    assert {"conn", "cycle", "flow", "limit_concurrency", "loop", "transport"} <= vars(connection).keys()
