"""A streamed answer: owns its request from submit to the last byte.

Built on sse-starlette's response, whose disconnect listener and headers stay. Events are pushed: the output loop
calls the sink, which renders and sends without waking a task. tests/routers/test_stream.py guards the private
methods that are overridden here against changes of the library.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

import anyio
import msgspec
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from engines.errors import Aborted, InternalFault, TailraceError
from processors.collector import Collector
from processors.delta import Delta, abort_of
from processors.dialects.renderer import Renderer
from processors.gateway import Gateway
from processors.request import PreparedRequest
from routers.push import PushWriter
from routers.service import RouteOptions

log = logging.getLogger("tailrace.stream")

STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform"}
PING = b": ping\n\n"


class _NoContent:
    """The library wants an iterable; events are pushed instead."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise AssertionError("events are pushed, not pulled")


class ChoiceSink:
    """One choice's end of the stream."""

    def __init__(self, stream: "EventStream", index: int) -> None:
        self._stream = stream
        self._index = index

    def deliver(self, delta: Delta) -> bool:
        """Render and send the delta, unless a write is under way."""
        return self._stream.deliver(self._index, delta)

    def fail(self, error: TailraceError) -> None:
        """End the whole stream with the error."""
        self._stream.fail(error)


class EventStream(EventSourceResponse):
    """Server-sent events of one answer.

    The status is decided by the first event of the engine: an error before it is raised and becomes an answer with
    its own status. After that an error is an event. A reader that is slow gets merged events; one that takes nothing
    for send_timeout seconds is cut off.
    """

    def __init__(
        self,
        gateway: Gateway,
        requests: Sequence[PreparedRequest],
        renderer: Renderer,
        options: RouteOptions,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(_NoContent(), headers={**STREAM_HEADERS, **headers}, ping=0, sep="\n")
        # Whether the connection stays is the server's to say, which may close it.
        del self.headers["connection"]
        self._gateway = gateway
        self._requests = requests
        self._renderer = renderer
        self._options = options
        self._open_choices = len(requests)
        self._watching = asyncio.Event()
        self._ended: asyncio.Future[TailraceError | None] | None = None
        self._writer: PushWriter | None = None
        self._collectors: list[Collector] = []
        self._silent = False
        self._ping_timer: asyncio.TimerHandle | None = None
        self._cut_off: BaseException | None = None
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        self._scope = scope
        await super().__call__(scope, receive, send)

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        self._watching.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _listen_for_exit_signal_with_grace(self) -> None:
        """Never ends: our own server drains, and ends streams through the gateway."""
        await anyio.sleep_forever()

    async def _stream_response(self, send: Send) -> None:
        await self._watching.wait()
        async with self._gateway.open(self._requests) as self._collectors:
            for first in await first_ready(self._collectors):
                if not self._renderer.reports_aborts:
                    raise_if_aborted(first)
            self._ended = asyncio.get_running_loop().create_future()
            try:
                await self._run(send)
            finally:
                self._close()

    async def _run(self, send: Send) -> None:
        assert self._ended is not None
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        writer = self._writer = PushWriter(
            send, timeout=self._options.send_timeout, on_free=self._resume, on_failure=self._lose
        )
        if opening := self._renderer.start():
            writer.write(opening)
        for index, collector in enumerate(self._collectors):
            collector.attach(ChoiceSink(self, index))
        self._watch_silence()
        error = await self._ended
        if self._cut_off is None:
            await writer.finish(self._renderer.end() if error is None else self._renderer.error(error))

    def deliver(self, index: int, delta: Delta) -> bool:
        """Send a choice's delta as an event. False while a write is under way."""
        assert self._writer is not None
        assert self._ended is not None
        if self._ended.done():
            return True
        if self._writer.busy:
            return False
        self._silent = False
        aborted = None if self._renderer.reports_aborts else abort_of(delta)
        if aborted is not None:
            delta = msgspec.structs.replace(delta, finish=None)
        try:
            event = self._renderer.delta(index, delta)
        except Exception:
            log.exception("a delta could not be rendered")
            self.fail(InternalFault("The answer could not be rendered."))
            return True
        self._writer.write(event)
        if aborted is not None:
            self.fail(aborted)
        if delta.finish is not None:
            self._open_choices -= 1
            if self._open_choices == 0:
                self._end(None)
        return True

    def fail(self, error: TailraceError) -> None:
        """End the stream with an error event."""
        self._end(error)

    def _end(self, error: TailraceError | None) -> None:
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(error)

    def _resume(self) -> None:
        """Deliver what the collectors kept while the writer was busy."""
        assert self._writer is not None
        for collector in self._collectors:
            if self._writer.busy:
                return
            collector.resume()

    def _lose(self, error: BaseException) -> None:
        """The reader takes nothing any more: nothing can be told to it, the connection is dropped."""
        log.info("reader lost: %s", "send timeout" if isinstance(error, TimeoutError) else type(error).__name__)
        self._cut_off = error
        abort_connection = self._scope.get("extensions", {}).get("tailrace.abort")
        if abort_connection is not None:
            abort_connection()
        self._end(Aborted("The client did not read the stream."))

    def _watch_silence(self) -> None:
        """Arm the ping timer: it sends a comment when an interval passed without any event."""
        interval = self._options.ping_interval
        if interval <= 0 or self._ended is None or self._ended.done():
            return
        assert self._writer is not None
        if self._silent and not self._writer.busy:
            self._writer.write(PING)
        self._silent = True
        self._ping_timer = asyncio.get_running_loop().call_later(interval, self._watch_silence)

    def _close(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        if self._writer is not None:
            self._writer.close()
        self._end(None)


def raise_if_aborted(delta: Delta) -> None:
    """Aborted if the request ended so, and nothing of it came before."""
    aborted = abort_of(delta)
    if aborted is not None and not delta.completion_tokens:
        raise aborted


async def first_ready(collectors: Sequence[Collector]) -> list[Delta]:
    """Wait until collectors have something to take, and show it. Raises the error of one that failed first."""
    if len(collectors) == 1:
        return [await collectors[0].ready()]
    tasks = [asyncio.ensure_future(collector.ready()) for collector in collectors]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [task.result() for task in done]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
