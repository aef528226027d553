"""One life of the embedded engine's process, from dialing it to its end."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from engines.local.options import LocalEngineOptions
from engines.local.wire import Goodbye, Hello, Ping, Pong, Progress, Ready, ToEngine, ToGateway
from engines.local.worker_link import FAREWELL_MS, WorkerLink
from engines.local.worker_process import WorkerProcess
from engines.protocol import BatchTokenOut, EngineInfo

PING_SECONDS = 2.0
SILENCE_SECONDS = 60.0
DIAL_SECONDS = 10.0


class WorkerSession:
    """A worker process, or another's that was dialed, and the link to it.

    `ready` becomes its info; `gone` the reason why it can't be used any more, after which no frame is delivered. A
    worker that was ready and then is silent for SILENCE_SECONDS, pings notwithstanding, hangs: it is given up. So is
    an address at which nobody listens for DIAL_SECONDS.
    """

    def __init__(
        self,
        address: str,
        process: WorkerProcess | None,
        *,
        engine_id: str,
        on_frame: Callable[[BatchTokenOut], None],
        on_progress: Callable[[str], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.process = process
        self.ready: asyncio.Future[EngineInfo] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self._on_frame = on_frame
        self._on_progress = on_progress
        self._heard = time.monotonic()
        self._link = WorkerLink(address, self._take, self._disconnected)
        self._link.send(Hello(engine_id))
        self._tasks = [asyncio.create_task(self._ping())]
        if process is not None:
            self._tasks.append(asyncio.create_task(self._await_exit(process)))

    @classmethod
    async def open(
        cls,
        options: LocalEngineOptions,
        address: str,
        *,
        engine_id: str,
        on_frame: Callable[[BatchTokenOut], None],
        on_progress: Callable[[str], None],
    ) -> "WorkerSession":
        """Start a worker at `address`, or dial the one that the options name."""
        process = await WorkerProcess.start(options, address) if options.address is None else None
        return cls(address, process, engine_id=engine_id, on_frame=on_frame, on_progress=on_progress)

    def send(self, message: ToEngine) -> None:
        """Send to the worker."""
        self._link.send(message)

    async def wait(self) -> EngineInfo | None:
        """Wait until it is ready or gone; its info if it is ready."""
        both: list[asyncio.Future[Any]] = [self.ready, self.gone]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return None if self.gone.done() else self.ready.result()

    async def close(self) -> None:
        """Take leave; stop the process if it is ours."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.process is not None:
            self._link.close()
            await self.process.stop()
        elif not self._link.closed:
            self._link.send(Goodbye())
            self._link.close(FAREWELL_MS)

    def _take(self, message: ToGateway) -> None:
        self._heard = time.monotonic()
        match message:
            case BatchTokenOut():
                self._on_frame(message)
            case Progress(text):
                self._on_progress(text)
            case Ready(info):
                if not self.ready.done():
                    self.ready.set_result(info)
            case Goodbye():
                self._end("the engine was started anew")
            case Pong():
                pass

    def _disconnected(self) -> None:
        """Without a process of ours to watch, the connection's end is the engine's."""
        if self.process is None:
            self._end("the connection to the engine broke")

    async def _await_exit(self, process: WorkerProcess) -> None:
        self._end(await process.wait())

    async def _ping(self) -> None:
        begin = time.monotonic()
        while not self.gone.done():
            await asyncio.sleep(PING_SECONDS)
            self._link.drain_all()
            now = time.monotonic()
            if self.ready.done() and now - self._heard > SILENCE_SECONDS:
                self._end("the engine does not answer")
            elif self.process is None and not self._link.connected and now - begin > DIAL_SECONDS:
                self._end("nobody listens at the engine's address")
            elif not self._link.closed:
                self._link.send(Ping())

    def _end(self, reason: str) -> None:
        """Deliver what has come, then nothing any more."""
        if not self.gone.done():
            self._link.drain_all()
        if not self.gone.done():
            self.gone.set_result(reason)
            self._link.close()
