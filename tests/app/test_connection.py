"""Connections: bounds that hold whatever a client sends or doesn't take."""

import asyncio
import contextlib

import msgspec
import pytest
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.connection import ABORT_EXTENSION, LARGEST_HEAD, Connection
from engines.errors import InvalidValue, PayloadTooLarge
from tests.client import GUARD, ErrorAnswer, RawConnection
from tests.listening import Listening, listen

BIG = 16 * 2**20
LONG = b"x" * (16 * LARGEST_HEAD)
"""More than a server reads at once."""

HEAD = b"GET /small HTTP/1.1\r\nHost: test\r\n"
CHUNKED = b"POST /small HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


class Dropping(Response):
    """Starts, then drops its connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        scope["extensions"][ABORT_EXTENSION]()
        while (await receive())["type"] != "http.disconnect":
            pass


async def test_an_answer_can_drop_its_connection_whatever_is_unsent() -> None:
    app = FastAPI()

    @app.get("/drop")
    async def drop(request: Request) -> Response:
        return Dropping()

    async with listen(app) as server:
        for _ in range(2):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/drop")
            try:
                answer = await connection.read_to_end()
            except ConnectionResetError:
                answer = b""
            assert not answer.endswith(b"0\r\n\r\n")
            await connection.close()
        assert not server.server_state.connections


def make_app(started: asyncio.Event, left: asyncio.Event) -> FastAPI:
    """Routes that answer little, much, and not before their client leaves."""
    app = FastAPI()

    @app.get("/small")
    @app.post("/small")
    async def small(request: Request) -> Response:
        with contextlib.suppress(ClientDisconnect):
            await request.body()
        return Response(b"small")

    @app.get("/big")
    async def big() -> Response:
        return Response(b"x" * BIG)

    @app.get("/never")
    async def never(request: Request) -> Response:
        started.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left.set()
        return Response()

    @app.get("/begun")
    async def begun() -> Response:
        return Begun()

    return app


class Begun(Response):
    """Starts, then waits for its client to leave."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass


def plain_app() -> FastAPI:
    return make_app(asyncio.Event(), asyncio.Event())


async def alone(server: Listening, connection: RawConnection) -> None:
    """Wait until a connection is the only one; it makes requests meanwhile."""
    async with asyncio.timeout(GUARD):
        while len(server.server_state.connections) > 1:
            connection.send_request("GET", "/small")
            await connection.read_until(b"small")


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X-Long: " + b"x" * LARGEST_HEAD,
        HEAD + b"X-Short: x\r\n" * (LARGEST_HEAD // 12 + 1),
        b"GET /" + b"x" * LARGEST_HEAD,
    ],
    ids=["header", "headers", "path"],
)
async def test_a_head_is_bounded(sent: bytes) -> None:
    async with listen(plain_app()) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(sent)
        head, _, body = (await connection.read_to_end()).partition(b"\r\n\r\n")
        await connection.close()
    assert head.startswith(b"HTTP/1.1 431 ")
    assert msgspec.json.decode(body, type=ErrorAnswer).error.code == PayloadTooLarge.code


@pytest.mark.parametrize("sent", [b"0\r\nX-Trailer: " + LONG, b"1;" + LONG], ids=["trailer", "chunk"])
async def test_what_stands_around_a_body_is_bounded(sent: bytes) -> None:
    async with listen(plain_app()) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(CHUNKED + sent)
        with contextlib.suppress(ConnectionResetError):
            assert await connection.read_to_end() == b""
        await connection.close()


async def test_heads_and_bodies_that_come_in_pieces_are_counted_apart() -> None:
    async with listen(plain_app()) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        for _ in range(3):
            connection.send(HEAD + b"X-Long: " + b"x" * (LARGEST_HEAD // 2) + b"\r\n\r\n")
            await connection.read_until(b"small")
        connection.send(CHUNKED + b"10\r\n%b\r\n" % (b"x" * 16) * LARGEST_HEAD + b"0\r\n\r\n")
        assert (await connection.read_until(b"small")).startswith(b"HTTP/1.1 200 ")
        await connection.close()


async def test_what_is_no_http_is_refused_like_all_else() -> None:
    async with listen(plain_app()) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(b"\x16\x03\x01\r\n\r\n")
        head, _, body = (await connection.read_to_end()).partition(b"\r\n\r\n")
        await connection.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert msgspec.json.decode(body, type=ErrorAnswer).error.code == InvalidValue.code


async def test_a_refusal_is_not_written_into_an_answer() -> None:
    async with listen(plain_app()) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send_request("GET", "/begun")
        await connection.read_until(b"first")
        connection.send(b"no HTTP\r\n\r\n")
        assert b"HTTP" not in await connection.read_to_end()
        await connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET /sm", HEAD])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    async with listen(plain_app(), timeout_keep_alive=1) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(sent)
        assert await connection.read_to_end() == b""
        await connection.close()


async def test_the_time_for_a_head_does_not_end_the_request() -> None:
    started, left = asyncio.Event(), asyncio.Event()
    async with listen(make_app(started, left), timeout_keep_alive=1) as server:
        idle = await RawConnection.open("127.0.0.1", server.port)
        busy = await RawConnection.open("127.0.0.1", server.port)
        busy.send_request("GET", "/never")
        async with asyncio.timeout(GUARD):
            await started.wait()
        await idle.read_to_end()
        assert not left.is_set()
        await busy.close()
        await idle.close()


async def test_a_reader_of_a_whole_answer_who_takes_nothing_is_dropped() -> None:
    async with listen(plain_app(), send_timeout=0.1) as server:
        stalled = await RawConnection.open("127.0.0.1", server.port, receive_buffer=4096)
        other = await RawConnection.open("127.0.0.1", server.port)
        stalled.send_request("GET", "/big")
        await stalled.read_until(b"\r\n\r\n")
        stalled.stop_reading()
        await alone(server, other)
        await stalled.close()
        await other.close()


async def test_a_reader_is_slow_as_long_as_it_takes_bytes() -> None:
    async with listen(plain_app()) as server:
        reader = await RawConnection.open("127.0.0.1", server.port, receive_buffer=65536)
        reader.send_request("GET", "/big")
        await reader.read_until(b"\r\n\r\n")
        (connection,) = server.server_state.connections
        assert isinstance(connection, Connection)
        for _ in range(3):
            await reader.reader.readexactly(BIG // 4)
            connection._drop_stalled()
            assert not connection.transport.is_closing()
        connection._drop_stalled()
        assert connection.transport.is_closing()
        await reader.close()


async def test_a_client_that_leaves_with_requests_queued_leaves_the_first_too() -> None:
    started, left = asyncio.Event(), asyncio.Event()
    async with listen(make_app(started, left)) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send_request("GET", "/never")
        connection.send_request("GET", "/small")
        async with asyncio.timeout(GUARD):
            await started.wait()
        (kept,) = server.server_state.connections
        assert isinstance(kept, Connection)
        # With a request queued uvicorn reads no more, so that only a write would find out.
        kept.transport.abort()
        async with asyncio.timeout(GUARD):
            await left.wait()
        await connection.close()
