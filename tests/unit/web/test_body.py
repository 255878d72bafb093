"""Bodies of strangers: as much as there is room for, whole or not at all, and nobody keeps others out."""

import asyncio

import pytest
from starlette.requests import Request

from maskedlark.web.body import GRACE_S, BodyMemory, read
from maskedlark.web.errors import BodyTooLarge, BodyTooSlow, TooManyUploads, WrongContentType
from tests.unit.web.timing import Time

MOST = 100


def upload(*parts, headers=(), stop=None, reached=None):
    """A request whose body comes in these parts; `reached` is set before the last one waits for `stop`."""
    coming = [*parts]

    async def receive():
        if len(coming) == 1 and stop is not None:
            reached.set()
            await stop.wait()
        part = coming.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(coming)}

    return Request({"type": "http", "method": "POST", "headers": [*headers], "state": {}}, receive)


async def taken(memory, request, within_s=60.0):
    with memory.reserve() as reservation:
        return await read(request, MOST, within_s, reservation)


def test_a_body_takes_its_bytes_while_the_block_runs_and_gives_them_back():
    memory = BodyMemory(MOST)

    async def run():
        for _ in range(3):
            with memory.reserve() as reservation:
                assert await read(upload(bytes(60), bytes(40)), MOST, 60, reservation) == bytes(100)
                with pytest.raises(TooManyUploads):
                    await taken(memory, upload(b"x"))
                assert await taken(memory, upload(b"")) == b""

    asyncio.run(run())


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"zstd", b"deflate", b"identity, gzip", b"GZIP"])
def test_a_compressed_body_is_not_read(encoding):
    async def never():
        raise AssertionError("it was read")

    request = upload(b"", headers=[(b"content-encoding", encoding)])
    request._receive = never
    with pytest.raises(WrongContentType, match="as it is"):
        asyncio.run(taken(BodyMemory(MOST), request))


def test_what_is_refused_leaves_its_room():
    memory = BodyMemory(MOST)

    async def run():
        with pytest.raises(BodyTooLarge):
            await taken(memory, upload(bytes(60), bytes(60)))
        with pytest.raises(BodyTooSlow):
            await taken(
                memory, upload(bytes(60), b"", stop=asyncio.Event(), reached=asyncio.Event()), within_s=0.01
            )
        assert await taken(memory, upload(bytes(MOST))) == bytes(MOST)

    asyncio.run(run())


async def crowded(memory, time, wait_s):
    """A body that stops halfway; behind it, after a while, one that needs its room: how both end."""
    stop, reached = asyncio.Event(), asyncio.Event()
    stuck = asyncio.create_task(taken(memory, upload(bytes(60), b"end", stop=stop, reached=reached)))
    await reached.wait()
    time.now += wait_s
    try:
        newcomer = await taken(memory, upload(bytes(30), bytes(30)))
    except TooManyUploads as error:
        newcomer = error
    stop.set()
    return newcomer, (await asyncio.gather(stuck, return_exceptions=True))[0]


def test_the_body_that_has_been_coming_longest_gives_way_and_its_sender_may_come_again():
    time = Time()
    memory = BodyMemory(MOST, time)
    newcomer, stuck = asyncio.run(crowded(memory, time, GRACE_S + 1))
    assert newcomer == bytes(60)
    assert isinstance(stuck, TooManyUploads)
    assert asyncio.run(taken(memory, upload(bytes(MOST)))) == bytes(MOST)


def test_for_a_moment_every_body_is_left_in_peace():
    time = Time()
    newcomer, stuck = asyncio.run(crowded(BodyMemory(MOST, time), time, GRACE_S - 1))
    assert isinstance(newcomer, TooManyUploads)
    assert stuck == bytes(60) + b"end"


def test_a_body_that_is_whole_gives_way_to_nobody():
    time = Time()
    memory = BodyMemory(MOST, time)

    async def run():
        with memory.reserve() as reservation:
            await read(upload(bytes(60)), MOST, 60, reservation)
            time.now += 1000
            with pytest.raises(TooManyUploads):
                await taken(memory, upload(bytes(60)))

    asyncio.run(run())


def test_bodies_that_do_not_come_keep_nobody_out():
    """The attack: more of them than bodies have room, each with a byte, and then silence."""
    memory = BodyMemory(MOST)

    async def run():
        stop, reached = asyncio.Event(), [asyncio.Event() for _ in range(50)]
        silent = [
            asyncio.create_task(taken(memory, upload(b"x", b"", stop=stop, reached=each))) for each in reached
        ]
        for each in reached:
            await each.wait()
        assert await taken(memory, upload(bytes(50))) == bytes(50)
        stop.set()
        assert await asyncio.gather(*silent) == [b"x"] * 50

    asyncio.run(run())
