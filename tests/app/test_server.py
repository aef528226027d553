import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn
from sse_starlette.sse import AppStatus

from app.server import FLUSH_TIMEOUT, Server, make_server
from app.settings import Settings
from tests.app.draining_app import make_app
from tests.client import GUARD, Client, RawConnection

ROOT = Path(__file__).parent.parent.parent


class Program:
    """The small app in its process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.port = 0
        self.told = ""
        self._connections: list[RawConnection] = []

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    async def read_log_until(self, pattern: str) -> re.Match[str]:
        """Read standard error up to a line that matches."""
        assert self._process.stderr is not None
        async with asyncio.timeout(GUARD):
            while line := (await self._process.stderr.readline()).decode():
                self.told += line
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"{pattern!r} was not said: {self.told}")

    async def read_start(self) -> None:
        """Read from the lifespan that it starts."""
        assert self._process.stdout is not None
        async with asyncio.timeout(GUARD):
            assert await self._process.stdout.readline() == b"starting\n"

    async def exit(self) -> tuple[int, list[str]]:
        """Exit code and what the lifespan said."""
        async with asyncio.timeout(GUARD):
            said, told = await self._process.communicate()
        self.told += told.decode()
        assert self._process.returncode is not None
        return self._process.returncode, said.decode().split()

    async def connect(self) -> RawConnection:
        """Connect; closed with the program."""
        connection = await RawConnection.open("127.0.0.1", self.port)
        self._connections.append(connection)
        return connection

    async def open(self, path: str) -> RawConnection:
        """Begin a stream."""
        connection = await self.connect()
        connection.send_request("GET", path)
        await connection.read_until(b"begun\n\r\n")
        return connection

    async def close(self) -> None:
        """Close every connection, and end the process if it has not ended."""
        for connection in self._connections:
            await connection.close()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def until_refused(self, client: Client) -> None:
        """Ask for new work until it is refused. The listener stays open all the while."""
        async with asyncio.timeout(GUARD):
            while (reply := await client.get("/new")).status == 200:
                pass
        assert (reply.status, reply.error.code) == (503, "draining")
        assert reply.headers["retry-after"] == "1"


@contextlib.asynccontextmanager
async def program(*flags: str, start: str = "up") -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.app.draining_app", start, *flags),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Program(process)
    try:
        if start == "up":
            running.port = int((await running.read_log_until(r"running on http://127.0.0.1:(\d+)"))[1])
        yield running
    finally:
        await running.close()


@contextlib.asynccontextmanager
async def client_of(running: Program) -> AsyncIterator[Client]:
    client = Client(f"http://127.0.0.1:{running.port}")
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_running_work_finishes_while_new_work_is_refused(number: signal.Signals) -> None:
    """CO-06."""
    async with program() as running, client_of(running) as client:
        streams = [await running.open("/stream") for _ in range(3)]
        running.signal(number)
        await running.until_refused(client)
        fresh = await running.connect()
        fresh.send_request("GET", "/new", headers={"Connection": "close"})
        assert (await fresh.read_to_end()).startswith(b"HTTP/1.1 503")
        await client.post("/finish")
        for stream in streams:
            assert (await stream.read_to_end()).endswith(b"finished\n\r\n0\r\n\r\n")
        assert await running.exit() == (0, ["starting", "closed"])
        assert "requests still running: 3; they have 30 s" in running.told


async def test_what_does_not_finish_in_time_is_ended_by_an_error() -> None:
    """CO-06."""
    async with program("--drain-timeout", "0.2") as running:
        streams = [await running.open("/stream") for _ in range(3)]
        running.signal()
        for stream in streams:
            assert (await stream.read_to_end()).endswith(b"aborted\n\r\n0\r\n\r\n")
        assert await running.exit() == (0, ["starting", "closed"])
        assert "Ending 3 requests" in running.told


async def test_without_work_the_end_is_at_once() -> None:
    async with program("--drain-timeout", "1000") as running, client_of(running) as client:
        assert (await client.get("/new")).status == 200
        running.signal()
        assert await running.exit() == (0, ["starting", "closed"])
        assert "still running" not in running.told


async def test_a_connection_that_is_stuck_does_not_hold_up_the_end() -> None:
    async with program("--drain-timeout", "0") as running:
        await running.open("/stuck")
        upload = await running.connect()
        upload.send(b"POST /finish HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n")
        began = time.monotonic()
        running.signal()
        assert (await running.exit())[0] == 0
        assert time.monotonic() - began < FLUSH_TIMEOUT + GUARD / 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    async with program("--drain-timeout", "1000") as running, client_of(running) as client:
        stream = await running.open("/stream")
        running.signal(number)
        await running.until_refused(client)
        running.signal(number)
        assert await running.exit() == (128 + number, ["starting", "closed"])
        with contextlib.suppress(ConnectionResetError):
            assert await stream.read_to_end() == b""


async def test_a_signal_during_the_start_ends_it_and_closes_what_was_begun() -> None:
    async with program(start="never") as running:
        await running.read_start()
        running.signal()
        assert await running.exit() == (128 + signal.SIGTERM, ["closed"])
        assert "Stopped before the server was up" in running.told


async def test_a_failed_start_exits_with_3_and_no_trace() -> None:
    async with program(start="fails") as running:
        assert await running.exit() == (3, ["starting", "closed"])
        assert "Traceback" not in running.told


async def test_streams_of_sse_starlette_are_left_alone() -> None:
    """The library looks every half second whether the server is to exit, and would cancel its streams."""
    async with program("--drain-timeout", "1000") as running, client_of(running) as client:
        stream = await running.open("/pings")
        running.signal()
        await running.until_refused(client)
        for _ in range(4):
            await stream.read_until(b": ping")
        await client.post("/finish")
        assert b": finished\n" in await stream.read_to_end()
        assert (await running.exit())[0] == 0


async def test_the_loop_is_uvloop() -> None:
    async with program() as running, client_of(running) as client:
        assert (await client.get("/new")).json.startswith("uvloop")


def test_configuration() -> None:
    server = make_server(make_app("up"), Settings(timeout_keep_alive=77, host="0.0.0.0", port=81))
    config = server.config
    assert (config.host, config.port, config.timeout_keep_alive) == ("0.0.0.0", 81, 77)
    assert (config.http, config.access_log, config.server_header) == ("httptools", False, False)
    assert config.timeout_graceful_shutdown == FLUSH_TIMEOUT


def test_keep_alive_outlasts_common_proxies() -> None:
    """CO-07: nginx and the load balancers of the clouds reuse idle connections for 60 to 90 s."""
    assert make_server(make_app("up"), Settings()).config.timeout_keep_alive >= 100


def test_our_signal_handler_is_not_the_one_that_sse_starlette_replaced() -> None:
    assert uvicorn.Server.handle_exit == AppStatus.handle_exit, "the library no longer replaces it: simplify"
    assert Server.handle_exit is not uvicorn.Server.handle_exit
    make_server(make_app("up"), Settings())
    assert not AppStatus.enable_automatic_graceful_drain
