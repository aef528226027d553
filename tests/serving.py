"""The whole app on a real socket within the test's own loop, checked for what requests leave behind.

    async with serve(settings, engine) as live:
        reply = await live.client.post("/v1/completions", {...})

The engine runs in the same loop, so that a test decides when it steps. Leaving the context closes all clients, waits
until every task that requests started has ended, and fails if the engine still works on anything, or if a task or a
socket outlives the server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from app.factory import create_app
from app.settings import Settings
from engines.protocol import EngineClient
from tests.client import Client, RawConnection
from tests.listening import Listening, listen
from tests.recording import RecordingEngine

SETTLING = 5.0
"""Seconds that tasks may take to end after their clients left; law 8 says one, a busy machine gets more."""


class LiveServer:
    """A server that runs: `client` talks to it, `engine` is what it talks to, `server` takes signals."""

    def __init__(self, server: Listening, engine: RecordingEngine) -> None:
        self.server = server
        self.engine = engine
        self.url = f"http://127.0.0.1:{server.port}"
        self.client = Client(self.url)
        self._clients = [self.client]
        self._connections: list[RawConnection] = []
        self._before = asyncio.all_tasks()

    def another_client(self, headers: dict[str, str] | None = None) -> Client:
        """A further client with its own connections; closed with the server."""
        client = Client(self.url, headers)
        self._clients.append(client)
        return client

    async def connect(self, *, receive_buffer: int | None = None) -> RawConnection:
        """A raw connection; closed with the server."""
        connection = await RawConnection.open("127.0.0.1", self.server.port, receive_buffer=receive_buffer)
        self._connections.append(connection)
        return connection

    async def close_clients(self) -> None:
        """Close every connection from this side."""
        for client in self._clients:
            await client.close()
        for connection in self._connections:
            await connection.close()

    async def settle(self) -> None:
        """Wait until all tasks that began since the start have ended, then check that the engine is empty."""
        async with asyncio.timeout(SETTLING):
            while tasks := asyncio.all_tasks() - self._before - {asyncio.current_task()}:
                await asyncio.wait(tasks)
        assert not self.engine.live, f"the engine still works on {self.engine.live}"


@contextlib.asynccontextmanager
async def serve(settings: Settings, engine: EngineClient) -> AsyncIterator[LiveServer]:
    """Serve an engine; yields once requests are taken."""
    recording = RecordingEngine(engine)
    app = create_app(settings, recording)
    async with listen(
        app, timeout_keep_alive=settings.timeout_keep_alive, drain_timeout=settings.drain_timeout
    ) as server:
        live = LiveServer(server, recording)
        try:
            yield live
        finally:
            await live.close_clients()
        await live.settle()
