"""The drive of a scripted engine that goes by itself."""

import asyncio
from collections.abc import Callable


class Pacer:
    """Calls `step` every `seconds`, and as often as the loop allows where that is 0.

    `step` says whether it had anything to do; once it had not, it is called again only after `wake`. A step that
    took too long is not made up for.
    """

    def __init__(self, step: Callable[[], bool], seconds: float) -> None:
        self._step = step
        self._seconds = seconds
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._awake.set()

    async def run(self) -> None:
        """Drive until cancelled. Raises what a step raises."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._awake.wait()
            self._awake.clear()
            if self._step():
                self._awake.set()
            now = loop.time()
            due = max(due + self._seconds, now)
            await asyncio.sleep(due - now)
