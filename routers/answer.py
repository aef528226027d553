"""An answer that is sent whole: owns its request from submit to the body, and ends it when the client leaves."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from processors.collector import Collector
from processors.delta import Delta, abort_of
from processors.dialects.renderer import Renderer
from processors.gateway import Gateway
from processors.request import PreparedRequest

T = TypeVar("T")
Argument = TypeVar("Argument")

# Some ten milliseconds of rendering with alternatives.
_INLINE_POSITIONS = 1000


class WholeAnswer(Response):
    """One JSON body. Errors are raised, so that they get their own status."""

    media_type = "application/json"

    def __init__(
        self, gateway: Gateway, requests: Sequence[PreparedRequest], renderer: Renderer, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._requests = requests
        self._renderer = renderer
        self._more_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a client that left gets nothing."""
        body = await unless_disconnected(receive, self._produce())
        if body is not None:
            response = Response(body, media_type=self.media_type, headers=dict(self._more_headers))
            await response(scope, receive, send)

    async def _produce(self) -> bytes:
        async with self._gateway.open(self._requests) as collectors:
            deltas = await all_whole(collectors)
        for delta in deltas:
            aborted = None if self._renderer.reports_aborts else abort_of(delta)
            if aborted is not None:
                raise aborted
        return await off_loop_if(weight_of(deltas) > _INLINE_POSITIONS, self._renderer.whole, deltas)


def weight_of(deltas: Sequence[Delta]) -> int:
    """Positions to render."""
    return sum(len(delta.token_ids) + sum(len(piece.token_ids) for piece in delta.prompt_logprobs) for delta in deltas)


async def off_loop_if(heavy: bool, work: Callable[[Argument], T], argument: Argument) -> T:
    """Do the work in a thread if it is heavy: the interpreter then turns to the loop every few milliseconds."""
    if not heavy:
        return work(argument)
    return await asyncio.get_running_loop().run_in_executor(None, work, argument)


async def all_whole(collectors: Sequence[Collector]) -> list[Delta]:
    """Every collector's whole output, in order. Raises the first error and waits for no other then."""
    if len(collectors) == 1:
        return [await collectors[0].whole()]
    tasks = [asyncio.ensure_future(collector.whole()) for collector in collectors]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Run the work with a watcher on the connection beside it; cancel it and return None if the client leaves.

    The watcher runs first, so that no client can leave unseen.
    """
    watcher = asyncio.ensure_future(_disconnect(receive))
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({watcher, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.gather(watcher, task, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
