"""Our own uvicorn server: it owns the signals and drains in order.

On SIGTERM or SIGINT new work is refused at once while the listener stays open to say so, running work has its time to
finish, what is left is ended by an error, and only then uvicorn shuts down as it does. A second signal skips the rest.
"""

import asyncio
import functools
import gc
import logging
import signal
import socket
import sys
from types import FrameType
from typing import Any, Protocol

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp
from uvicorn.lifespan.on import LifespanOn, LifespanSendMessage
from uvicorn.server import HANDLED_SIGNALS

from app.connection import Connection
from app.settings import Settings
from engines.errors import Aborted, TailraceError

logger = logging.getLogger("tailrace.server")

FLUSH_TIMEOUT = 3
"""Seconds that connections have to take their last bytes once no request is live."""

FORCED_CLOSE_TIMEOUT = 1.0
"""Seconds that the engine has to close after a second signal."""


class Drainable(Protocol):
    """What the server drains: the gateway."""

    @property
    def running(self) -> int:
        """Live requests."""

    def begin_drain(self) -> None:
        """Refuse new requests from now on."""

    async def idle(self) -> None:
        """Wait until no request is live."""

    def abort_all(self, error: TailraceError) -> None:
        """End every live request with the error."""


class QuietLifespan(LifespanOn):
    """uvicorn's lifespan without the trace of a failed start: the app has said by then what failed."""

    async def send(self, message: LifespanSendMessage) -> None:
        """Take an event from the app."""
        if message["type"] == "lifespan.startup.failed":
            message = {"type": "lifespan.startup.failed", "message": ""}
        await super().send(message)


class Server(uvicorn.Server):
    """Serves one app whose lifespan state holds a `service` with a `gateway`."""

    def __init__(self, config: uvicorn.Config, *, drain_timeout: float, send_timeout: float = 30.0) -> None:
        super().__init__(config)
        # sse-starlette would end every stream half a second after a signal; its replacement of uvicorn's
        # handle_exit doesn't reach the override below.
        AppStatus.enable_automatic_graceful_drain = False
        self._drain_timeout = drain_timeout
        self._send_timeout = send_timeout
        self._signals: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._draining: asyncio.Task[None] | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal. Exits with 128 + its number if it came before the server was up or was the second."""
        try:
            super().run(sockets)
        except asyncio.CancelledError:
            if not self._signals:
                raise
        if self._signals and not self._drained:
            sys.exit(128 + self._signals[-1])

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal."""
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.current_task()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then take all that was made so far (modules, tables) out of the garbage collector's rounds."""
        protocol: Any = functools.partial(Connection, send_timeout=self._send_timeout)
        self.config.http_protocol_class = protocol
        self.lifespan = QuietLifespan(self.config)
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal: the first drains, the second ends the server at once, a third is left to the system."""
        assert self._loop is not None
        self._signals.append(sig)
        if len(self._signals) > 1:
            for each in HANDLED_SIGNALS:
                signal.signal(each, signal.SIG_DFL)
        # A handler runs between any two bytecodes of the loop's own work.
        self._loop.call_soon_threadsafe(self._drain_or_force)

    def _drain_or_force(self) -> None:
        if not self.started:
            assert self._serving is not None
            logger.info("Stopped before the server was up")
            self._serving.cancel()
        elif self._draining is None:
            self._draining = asyncio.create_task(self._drain(self.lifespan.state["service"].gateway))
        else:
            logger.warning("Second signal: ending at once")
            self.force_exit = self.should_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    @property
    def _drained(self) -> bool:
        return self._draining is not None and not self.force_exit

    async def _drain(self, gateway: Drainable) -> None:
        try:
            gateway.begin_drain()
            if gateway.running:
                logger.info(
                    "Draining: requests still running: %d; they have %g s to finish, a second signal ends them now",
                    gateway.running,
                    self._drain_timeout,
                )
            async with asyncio.timeout(self._drain_timeout):
                await gateway.idle()
        except TimeoutError:
            logger.warning("Ending %d requests that did not finish in time", gateway.running)
            gateway.abort_all(Aborted("The server is shutting down and ended the request."))
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close listener, connections and lifespan; a forced end gives the lifespan a second."""
        await super().shutdown(sockets)
        if self.force_exit:
            try:
                async with asyncio.timeout(FORCED_CLOSE_TIMEOUT):
                    await self.lifespan.shutdown()
            except TimeoutError:
                logger.error("The engine did not close within %g s", FORCED_CLOSE_TIMEOUT)


def make_server(app: ASGIApp, settings: Settings) -> Server:
    """A server for an app, on uvloop and httptools, without uvicorn's own access log and log set-up."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.timeout_keep_alive,
        timeout_graceful_shutdown=FLUSH_TIMEOUT,
    )
    return Server(config, drain_timeout=settings.drain_timeout, send_timeout=settings.send_timeout)
