"""Writing body chunks without a task switch.

An ASGI server's send finishes at once while its flow control is open, so the awaitable can be driven to its end by
hand from wherever the chunk is made. Where it suspends, a task takes it over, and the writer is busy until it is done.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from starlette.types import Message, Send


class PushWriter:
    """Writes the chunks of one response. One write at a time: look at `busy` first.

    on_free is called when a suspended write is done, on_failure when a write raised or took longer than `timeout`
    seconds; nothing can be written after that.
    """

    def __init__(
        self, send: Send, *, timeout: float, on_free: Callable[[], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._send = send
        self._timeout = timeout
        self._on_free = on_free
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._task is not None

    def write(self, data: bytes) -> None:
        """Send a chunk, now or as soon as the server takes it."""
        step = self._send({"type": "http.response.body", "body": data, "more_body": True}).__await__()
        try:
            waited = next(step)
        except StopIteration:
            return
        except Exception as error:
            self._on_failure(error)
            return
        self._task = asyncio.get_running_loop().create_task(self._finish(step, waited))

    async def _finish(self, step: Generator[Any, Any, Any], waited: Any) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await _continued(step, waited)
        except Exception as error:
            self._task = None
            self._on_failure(error)
            return
        self._task = None
        self._on_free()

    async def drain(self) -> None:
        """Wait until no write is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def finish(self, data: bytes) -> None:
        """Send the last chunk. TimeoutError if the server does not take it in time."""
        await self.drain()
        message: Message = {"type": "http.response.body", "body": data, "more_body": False}
        async with asyncio.timeout(self._timeout):
            await self._send(message)

    def close(self) -> None:
        """Drop a write that is under way."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


@types.coroutine
def _continue(step: Generator[Any, Any, Any], waited: Any) -> Generator[Any, Any, None]:
    """Go on with an awaitable that was driven by hand up to `waited`, the thing that it waits for."""
    while True:
        try:
            sent = yield waited
        except BaseException as error:  # whatever is thrown into the task belongs to the awaitable
            try:
                waited = step.throw(error)
            except StopIteration:
                return
        else:
            try:
                waited = step.send(sent)
            except StopIteration:
                return


def _continued(step: Generator[Any, Any, Any], waited: Any) -> Awaitable[None]:
    return _continue(step, waited)
