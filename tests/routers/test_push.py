"""A writer that drives an ASGI send by hand, and lets a task take over where it suspends."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from routers.push import PushWriter


class Transport:
    """An ASGI send whose flow control can be shut."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.last = False
        self.failure: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, message: Message) -> None:
        if self.failure is not None:
            raise self.failure
        await asyncio.Event.wait(self.open)
        self.sent.append(message["body"])
        self.last = not message["more_body"]


class Outcome:
    """What the writer told."""

    def __init__(self) -> None:
        self.freed = asyncio.Event()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()


def writer_to(send: Transport, *, timeout: float = 30.0) -> tuple[PushWriter, Outcome]:
    outcome = Outcome()
    fail: Callable[[BaseException], None] = outcome.failed.set_result
    return PushWriter(send, timeout=timeout, on_free=outcome.freed.set, on_failure=fail), outcome


async def test_an_open_transport_takes_a_chunk_within_the_call() -> None:
    transport = Transport()
    writer, _ = writer_to(transport)
    before = asyncio.all_tasks()
    writer.write(b"one")
    writer.write(b"two")
    assert transport.sent == [b"one", b"two"]
    assert not writer.busy
    assert asyncio.all_tasks() == before


async def test_a_shut_transport_makes_the_writer_busy_until_it_opens() -> None:
    transport = Transport()
    writer, outcome = writer_to(transport)
    transport.open.clear()
    writer.write(b"one")
    assert transport.sent == []
    transport.open.set()
    await outcome.freed.wait()
    assert not writer.busy
    assert transport.sent == [b"one"]


async def test_the_last_chunk_waits_for_the_one_under_way() -> None:
    transport = Transport()
    writer, _ = writer_to(transport)
    transport.open.clear()
    writer.write(b"one")
    finishing = asyncio.ensure_future(writer.finish(b"end"))
    transport.open.set()
    await finishing
    assert transport.sent == [b"one", b"end"]
    assert transport.last


async def test_a_reader_that_takes_nothing_runs_out_of_time() -> None:
    transport = Transport()
    writer, outcome = writer_to(transport, timeout=0.01)
    transport.open.clear()
    writer.write(b"one")
    assert isinstance(await outcome.failed, TimeoutError)
    assert not writer.busy
    with pytest.raises(TimeoutError):
        await writer.finish(b"end")


async def test_a_send_that_raises_is_told_and_not_raised_into_the_output_loop() -> None:
    transport = Transport()
    writer, outcome = writer_to(transport)
    transport.failure = OSError("gone")
    writer.write(b"one")
    assert await outcome.failed is transport.failure


async def test_closing_drops_a_write_under_way() -> None:
    transport = Transport()
    writer, outcome = writer_to(transport)
    before = asyncio.all_tasks()
    transport.open.clear()
    writer.write(b"one")
    (task,) = asyncio.all_tasks() - before
    writer.close()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not outcome.failed.done()
    assert transport.sent == []
