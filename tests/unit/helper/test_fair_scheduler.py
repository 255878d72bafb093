"""Turns at long work: one origin that floods does not starve another."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.helper.fair_scheduler import FairScheduler
from maskedlark.wire.datasets import JSON_TYPE
from tests.unit.helper.world import ORIGIN, OTHER, OTHER_DOCUMENT_KEY, OTHER_KEY, world


class Work:
    """Work that begins when it has its turn, and ends when it is let go."""

    def __init__(self, log, name):
        self.begun, self._leave = threading.Event(), threading.Event()
        self._log, self._name = log, name

    def __call__(self):
        self._log.append(self._name)
        self.begun.set()
        assert self._leave.wait(30)
        return self._name

    def leave(self):
        self._leave.set()


async def begun(work):
    assert await asyncio.to_thread(work.begun.wait, 30)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_whoever_comes_first_to_it_is_answered_while_another_has_taken_all_it_may(workers):
    """The attack: A has more waiting than there are threads, and each of them takes as long as it likes."""
    turns = FairScheduler(workers, "test")
    log: list[str] = []

    async def run():
        flood = [Work(log, f"a{number}") for number in range(4 * workers)]
        asked = [asyncio.create_task(turns.run("a.example", each)) for each in flood]
        for each in flood[:workers]:
            await begun(each)
        honest = Work(log, "b")
        honest.leave()
        assert await asyncio.wait_for(turns.run("b.example", honest), 30) == "b"
        assert len(log) == workers + 1
        for each in flood:
            each.leave()
        assert await asyncio.gather(*asked) == [f"a{number}" for number in range(4 * workers)]

    asyncio.run(run())


def test_origins_take_turns():
    turns = FairScheduler(1, "test")
    log: list[str] = []

    async def run():
        works = {name: Work(log, name) for name in ("a0", "b0", "a1", "a2", "b1", "c0", "b2")}
        asked = []
        for name in ("a0", "b0"):  # Both threads are taken, and are let go one by one.
            asked.append(asyncio.create_task(turns.run(name[0], works[name])))
            await begun(works[name])
        later = ("a1", "a2", "b1", "b2", "c0")
        asked += [asyncio.create_task(turns.run(name[0], works[name])) for name in later]
        await asyncio.sleep(0)
        works["a0"].leave()
        await begun(works["a1"])  # b has all it may have.
        works["a1"].leave()
        await begun(works["c0"])  # It came last, but a has had its turn.
        works["b0"].leave()
        await begun(works["b1"])  # It had none at work for longer than a.
        for each in works.values():
            each.leave()
        await asyncio.gather(*asked)
        assert log[:5] == ["a0", "b0", "a1", "c0", "b1"]

    asyncio.run(run())


def test_errors_reach_who_asked_and_nobody_else():
    turns = FairScheduler(1, "test")

    def fails():
        raise ValueError("mine")

    async def run():
        with pytest.raises(ValueError, match="mine"):
            await turns.run("a", fails)
        assert await turns.run("a", lambda: 1) == 1

    asyncio.run(run())


def test_work_that_nobody_waits_for_any_more_is_not_begun():
    turns = FairScheduler(1, "test")
    log: list[str] = []

    async def run():
        first, second = Work(log, "first"), Work(log, "second")
        held = asyncio.create_task(turns.run("a", first))
        await begun(first)
        given_up = asyncio.create_task(turns.run("a", second))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        first.leave()
        assert await held == "first"
        assert await turns.run("a", lambda: 1) == 1
        assert log == ["first"]

    asyncio.run(run())


def test_a_helper_answers_one_origin_while_another_has_as_many_questions_there_as_it_may(
    tmp_path, monkeypatch
):
    """The attack: questions that take long, in half of the room. The other's is answered while they wait."""
    room, inside, leave = 8, threading.Semaphore(0), threading.Event()

    def release(_service, origin, _body):
        if origin == ORIGIN:
            inside.release()
            assert leave.wait(30)
        return origin.encode()

    with world(tmp_path, limits={"bodies": room}, compute={"workers": 2}) as helper:
        monkeypatch.setattr(type(helper.service), "release", release)
        helper.publish()
        helper.publish(OTHER_DOCUMENT_KEY, origin=OTHER, request_key=OTHER_KEY.verifying.public.hex())
        mine, other = helper.remote(), helper.remote(OTHER_KEY, OTHER)
        with ThreadPoolExecutor(room) as pool:
            asked = [pool.submit(mine.post, "/v2/releases", b"{}", JSON_TYPE) for _ in range(room // 2)]
            for _ in range(2):
                assert inside.acquire(timeout=30)
            assert other.post("/v2/releases", b"{}", JSON_TYPE) == OTHER.encode()
            assert not any(each.done() for each in asked)
            leave.set()
            assert [each.result(30) for each in asked] == [ORIGIN.encode()] * (room // 2)
