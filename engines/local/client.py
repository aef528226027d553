"""The gateway's side of the embedded engine: starts its process, keeps it alive, passes requests and frames."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq

from engines.errors import EngineUnavailable
from engines.local.options import LocalEngineOptions
from engines.local.wire import Abort, Submit
from engines.local.worker_session import WorkerSession
from engines.protocol import EngineInfo, EngineListener, EngineRequest, EngineState

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0


class LocalEngine:
    """An EngineClient for one worker process, restarted whenever it ends, or for one that runs already.

    `on_progress` gets lines for people while the model loads.
    """

    def __init__(
        self,
        options: LocalEngineOptions,
        *,
        engine_id: str = "local",
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._engine_id = engine_id
        self._on_progress = on_progress or (lambda _: None)
        self._folder: Path | None = None
        self._session: WorkerSession | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._info: EngineInfo | None = None
        self._state = EngineState.STARTING

    @property
    def state(self) -> EngineState:
        """Whether requests are taken now."""
        return self._state

    @property
    def info(self) -> EngineInfo:
        """What the engine said of itself; EngineUnavailable before it first was ready."""
        if self._info is None:
            raise EngineUnavailable("the engine was not ready yet")
        return self._info

    @property
    def address(self) -> str:
        """Where further gateways may dial the same worker. EngineUnavailable before `start` and after `close`."""
        if self._options.address is not None:
            return self._options.address
        if self._folder is None:
            raise EngineUnavailable("the engine is not started")
        return f"ipc://{self._folder}/engine.sock"

    @property
    def pid(self) -> int | None:
        """Id of the worker process, if it is ours and there is one."""
        return self._session.process.pid if self._session is not None and self._session.process is not None else None

    async def start(self, listener: EngineListener) -> None:
        """Start or dial the worker and return once it is ready. EngineUnavailable, with its own reason, if it ends."""
        if self._options.address is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tailrace-"))
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(listener, first))
        both: list[asyncio.Future[None]] = [first, self._supervisor]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not first.done() or first.exception():
                await self.close()
        if not first.done():
            raise EngineUnavailable("the engine was closed before it was ready")
        first.result()

    def submit(self, request: EngineRequest) -> None:
        """Hand over a request. EngineUnavailable unless the engine is ready."""
        if self._session is None or self._state is not EngineState.READY:
            raise EngineUnavailable("the engine is not ready", retry_after=FIRST_DELAY)
        self._session.send(Submit(request))

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests within one step. Those of an engine that is down are lost already."""
        if self._session is not None and self._state is EngineState.READY:
            self._session.send(Abort(list(request_ids)))

    async def close(self) -> None:
        """Stop the worker, or leave it if it isn't ours; no process, socket or folder is left. Safe to call twice."""
        self._state = EngineState.DOWN
        if self._supervisor is not None:
            supervisor, self._supervisor = self._supervisor, None
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def _supervise(self, listener: EngineListener, first: "asyncio.Future[None]") -> None:
        """Let one worker follow the other, ever more slowly while none of them lasts."""
        delay = FIRST_DELAY
        while True:
            begin = time.monotonic()
            reason = await self._live(listener, first)
            if not first.done():
                first.set_exception(EngineUnavailable(reason))
                return
            lasted = time.monotonic() - begin
            delay = FIRST_DELAY if lasted > LONGEST_DELAY else delay
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)

    async def _live(self, listener: EngineListener, first: "asyncio.Future[None]") -> str:
        """Go through one worker's life and return why it ended."""
        try:
            session = await WorkerSession.open(
                self._options,
                self.address,
                engine_id=self._engine_id,
                on_frame=listener.on_frame,
                on_progress=self._on_progress,
            )
        except (OSError, zmq.ZMQError) as error:
            return f"the engine could not be started: {error}"
        self._session = session
        try:
            if (info := await session.wait()) is not None:
                self._info, self._state = info, EngineState.READY
                listener.on_up(info)
                if not first.done():
                    first.set_result(None)
                await asyncio.wait([session.gone])
                self._state = EngineState.DOWN
                listener.on_down(self._engine_id, session.gone.result())
            return session.gone.result()
        finally:
            self._session = None
            await session.close()
