"""An ASGI app on a real socket within the test's own loop, with uvicorn as in production but for signals."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from tests.client import GUARD


class _Server(uvicorn.Server):
    """uvicorn's server, told to stop by the test instead of by signals, and at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as failure:
            raise RuntimeError("the app failed to start") from failure
        self.up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop.wait()


@contextlib.asynccontextmanager
async def listen(app: ASGIApp, *, timeout_keep_alive: int = 120) -> AsyncIterator[int]:
    """Serve an app on 127.0.0.1; yields the port once connections are taken.

    Fails at the end if tasks or sockets outlive the server.
    """
    tasks, sockets = asyncio.all_tasks(), open_sockets()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=timeout_keep_alive,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        await _first(serving, server.up)
        yield listener.getsockname()[1]
    finally:
        server.stop.set()
        try:
            async with asyncio.timeout(GUARD):
                await serving
        finally:
            listener.close()
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
