"""An engine seen from outside: passes every call and frame on and remembers them, so that tests can wait for them."""

import asyncio
from collections.abc import Callable, Sequence

from engines.protocol import EngineClient, EngineInfo, EngineListener, EngineRequest, EngineState, Frame
from tests.client import GUARD


class RecordingEngine:
    """An EngineClient around another one.

    submitted: requests in order. aborted: ids in order, as often as told. live: ids handed over, neither finished by
    the engine nor aborted: what the engine still works on.
    """

    def __init__(self, inner: EngineClient) -> None:
        self._inner = inner
        self._listener: EngineListener | None = None
        self._changed = asyncio.Event()
        self.submitted: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.live: set[str] = set()

    @property
    def state(self) -> EngineState:
        """State of the engine inside."""
        return self._inner.state

    @property
    def info(self) -> EngineInfo:
        """What the engine inside says of itself."""
        return self._inner.info

    async def start(self, listener: EngineListener) -> None:
        """Start the engine inside; its frames come through here."""
        self._listener = listener
        await self._inner.start(self)

    def submit(self, request: EngineRequest) -> None:
        """Pass on and note."""
        self._inner.submit(request)
        self.submitted.append(request)
        self.live.add(request.id)
        self._changed.set()

    def abort(self, request_ids: Sequence[str]) -> None:
        """Pass on and note."""
        self._inner.abort(request_ids)
        self.aborted += request_ids
        self.live.difference_update(request_ids)
        self._changed.set()

    async def close(self) -> None:
        """Close the engine inside."""
        await self._inner.close()

    def on_frame(self, frame: Frame) -> None:
        """Pass on and note what finished."""
        assert self._listener is not None
        self.live -= {
            request_id
            for request_id, finish in zip(frame.request_ids, frame.finishes, strict=True)
            if finish is not None
        }
        self._listener.on_frame(frame)
        self._changed.set()

    def on_down(self, engine_id: str, reason: str) -> None:
        """Pass on; nothing lives in an engine that is gone."""
        assert self._listener is not None
        self.live.clear()
        self._listener.on_down(engine_id, reason)
        self._changed.set()

    def on_up(self, info: EngineInfo) -> None:
        """Pass on."""
        assert self._listener is not None
        self._listener.on_up(info)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what is remembered here holds; it is looked at after every call and frame."""
        async with asyncio.timeout(GUARD):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_submitted(self, count: int) -> None:
        """Wait until `count` requests were handed over in all."""
        await self.until(lambda: len(self.submitted) >= count)

    async def until_empty(self) -> None:
        """Wait until the engine works on nothing."""
        await self.until(lambda: not self.live)
