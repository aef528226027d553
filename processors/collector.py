"""One request's outlet: delivers a delta at once when its sink can take it, merges it otherwise.

Rows in are rows out: what is merged is only concatenated, so a slow reader gets larger deltas, never other ones.
"""

import asyncio
from typing import Protocol

from engines.errors import TailraceError
from processors.delta import Delta
from processors.meter import NO_METER, Meter


class Sink(Protocol):
    """Where deltas go without a task switch."""

    def deliver(self, delta: Delta) -> bool:
        """Take the delta, or return False: the collector then keeps it until `Collector.resume`."""

    def fail(self, error: TailraceError) -> None:
        """Take the end of a request that failed; nothing follows."""


class Collector:
    """Between the output loop, which puts, and one reader: a sink attached, or a task that waits.

    Ends with the first delta that carries a finish, or with `fail`; later calls are ignored.
    """

    def __init__(self, meter: Meter = NO_METER) -> None:
        self._meter = meter
        self._pending: Delta | None = None
        self._sink: Sink | None = None
        self._error: TailraceError | None = None
        self._finished = False
        self._told = False
        self._changed: asyncio.Future[None] | None = None
        self._only_end = False

    @property
    def ended(self) -> bool:
        """Whether nothing more can come in."""
        return self._finished or self._error is not None

    def put(self, delta: Delta) -> None:
        """Take the next delta of the request."""
        if self.ended:
            return
        if self._pending is None:
            if self._sink is None or not self._sink.deliver(delta):
                self._pending = delta
        else:
            self._pending.extend(delta)
            self._meter.count_merge()
        self._finished = delta.finish is not None
        self._wake()

    def fail(self, error: TailraceError) -> None:
        """End the request with an error; what is pending still goes out before it."""
        if self.ended:
            return
        self._error = error
        self._tell()
        self._wake()

    def attach(self, sink: Sink) -> None:
        """From now on deliver to the sink, beginning with what is pending."""
        self._sink = sink
        self.resume()

    def resume(self) -> None:
        """Deliver what was kept: the sink can take deltas again."""
        assert self._sink is not None
        if self._pending is not None:
            if not self._sink.deliver(self._pending.settle()):
                return
            self._pending = None
        self._tell()

    def _tell(self) -> None:
        if self._error is not None and self._sink is not None and self._pending is None and not self._told:
            self._told = True
            self._sink.fail(self._error)

    async def ready(self) -> Delta:
        """Wait until there is something to take, and show it. Raises the request's error if nothing is before it."""
        while self._pending is None:
            if self._error is not None:
                raise self._error
            await self._change()
        return self._pending

    async def get(self) -> Delta:
        """Wait for what has come since the last call, merged. Raises the request's error after the last delta."""
        delta = await self.ready()
        self._pending = None
        return delta.settle()

    async def whole(self) -> Delta:
        """Wait for the request's end and return all of it. Raises the request's error: no partial answer."""
        self._only_end = True
        while not self.ended:
            await self._change()
        if self._error is not None:
            raise self._error
        return await self.get()

    async def _change(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done() and (self.ended or not self._only_end):
            self._changed.set_result(None)
