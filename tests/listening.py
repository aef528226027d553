"""An ASGI app on a real socket within the test's own loop, by the server of production but for the signals."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from app.server import Server
from tests.client import GUARD


class Listening(Server):
    """The server; told to stop by the test."""

    def __init__(self, app: ASGIApp, timeout_keep_alive: int, drain_timeout: float, send_timeout: float) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=timeout_keep_alive,
        )
        super().__init__(config, drain_timeout=drain_timeout, send_timeout=send_timeout)
        self.up = asyncio.Event()
        # asyncio sets TCP_NODELAY only where the protocol is named, as it is in production.
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.listener.bind(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as failure:
            raise RuntimeError("the app failed to start") from failure
        finally:
            # What was frozen would never be collected, and tests start many servers.
            gc.unfreeze()
        self.up.set()

    def terminate(self) -> None:
        """What SIGTERM does."""
        self.handle_exit(signal.SIGTERM, None)


@contextlib.asynccontextmanager
async def listen(
    app: ASGIApp, *, timeout_keep_alive: int = 120, drain_timeout: float = GUARD, send_timeout: float = GUARD
) -> AsyncIterator[Listening]:
    """Serve an app on 127.0.0.1; yields the server once connections are taken.

    Fails at the end if tasks or sockets outlive it.
    """
    tasks, sockets = asyncio.all_tasks(), open_sockets()
    server = Listening(app, timeout_keep_alive, drain_timeout, send_timeout)
    serving = asyncio.create_task(server.serve([server.listener]))
    try:
        await _first(serving, server.up)
        yield server
    finally:
        server.should_exit = True
        try:
            async with asyncio.timeout(GUARD):
                await serving
        finally:
            server.listener.close()
    assert not asyncio.all_tasks() - tasks, "tasks outlive the server"
    assert not open_sockets() - sockets, "sockets outlive the server"


async def _first(serving: asyncio.Task[None], up: asyncio.Event) -> None:
    """Wait until the server is up; raise what ended it before."""
    waiting = asyncio.create_task(up.wait())
    async with asyncio.timeout(GUARD):
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await serving
        raise AssertionError("the server ended while it started")


def open_sockets() -> set[str]:
    """The sockets that this process has open, by inode."""
    links = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(f"/proc/self/fd/{entry}"))
    return {link for link in links if link.startswith("socket:")}
