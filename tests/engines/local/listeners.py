"""A listener that keeps what it hears and lets tests wait for it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from engines.protocol import BatchTokenOut, EngineInfo, Finish, Frame

GUARD_SECONDS = 60.0


class Recorder:
    """Hears one or more engines; `tokens` and `finishes` by request id."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.finishes: dict[str, Finish] = {}
        self.frames: list[BatchTokenOut] = []
        self.downs: list[tuple[str, str]] = []
        self.ups: list[EngineInfo] = []
        self._heard = asyncio.Event()

    def on_frame(self, frame: Frame) -> None:
        assert isinstance(frame, BatchTokenOut)
        self.frames.append(frame)
        ids = iter(frame.token_ids)
        for request_id, count, finish in zip(frame.request_ids, frame.token_counts, frame.finishes, strict=True):
            self.tokens[request_id] += [next(ids) for _ in range(count)]
            if finish is not None:
                self.finishes[request_id] = finish
        self._heard.set()

    def on_down(self, engine_id: str, reason: str) -> None:
        self.downs.append((engine_id, reason))
        self._heard.set()

    def on_up(self, info: EngineInfo) -> None:
        self.ups.append(info)
        self._heard.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            while not condition():
                self._heard.clear()
                await self._heard.wait()
