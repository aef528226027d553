import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.client import Client, RawConnection
from tests.listening import listen, open_sockets
from tests.sse import BrokenStream


async def echo(request: Request) -> Response:
    body = await request.body()
    status = int(request.headers.get("x-status", "200"))
    return Response(body, status, media_type="application/json", headers={"x-seen": request.headers["host"]})


async def events(request: Request) -> Response:
    body = await request.json()
    assert body["stream"] is True
    stream = (block.encode() for block in body["blocks"])
    return StreamingResponse(stream, headers={"content-type": "text/event-stream; charset=utf-8"})


app = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/events", events, methods=["POST"])])


async def test_a_reply_is_read_strictly() -> None:
    async with listen(app) as server:
        client = Client(f"http://127.0.0.1:{server.port}")
        reply = await client.post("/echo", {"a": "é"})
        assert (reply.status, reply.json) == (200, {"a": "é"})
        with pytest.raises(BrokenStream):
            _ = (await client.post("/echo", raw=b"[NaN]")).json
        refusal = b'{"error":{"message":"m","type":"t","param":null,"code":"c"}}'
        reply = await client.post("/echo", raw=refusal, headers={"x-status": "400"})
        assert (reply.error.message, reply.error.code) == ("m", "c")
        with pytest.raises(AssertionError):
            _ = (await client.post("/echo", raw=refusal)).error
        await client.close()


async def test_events_come_one_by_one_and_the_end_is_checked() -> None:
    async with listen(app) as server:
        client = Client(f"http://127.0.0.1:{server.port}")
        blocks = ['data: {"n":1}\n', '\n: ping\n\ndata: {"n":2}\n\n', "data: [DONE]\n\n"]
        async with client.stream("/events", {"blocks": blocks}) as stream:
            assert await stream.next() == {"n": 1}
            assert (await anext(stream)).comment == "ping"
            assert await stream.rest() == [{"n": 2}]
        assert await client.events("/events", {"blocks": blocks}) == [{"n": 1}, {"n": 2}]
        with pytest.raises(BrokenStream):
            await client.events("/events", {"blocks": blocks[:2]})
        await client.close()


async def test_a_raw_connection_sends_what_it_is_told() -> None:
    async with listen(app) as server:
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send_request("POST", "/echo", {"a": 1}, {"Connection": "close"})
        assert (await connection.read_until(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert (await connection.read_to_end()).endswith(b'{"a":1}')
        await connection.close()
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(b"GET /echo HTTP/1.1\r\n")
        await connection.reset()


async def test_what_outlives_the_server_is_found() -> None:
    left = asyncio.Event()
    started: list[asyncio.Task[bool]] = []

    async def leaking(request: Request) -> Response:
        started.append(asyncio.create_task(left.wait()))
        return JSONResponse({})

    async def visit() -> None:
        async with listen(Starlette(routes=[Route("/", leaking)])) as server:
            client = Client(f"http://127.0.0.1:{server.port}")
            await client.get("/")
            await client.close()

    with pytest.raises(AssertionError, match="tasks outlive"):
        await visit()
    left.set()
    await started[0]


async def test_an_app_that_fails_to_start_fails_the_test() -> None:
    async def failing(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("no")

    before = open_sockets()
    with pytest.raises(RuntimeError, match="failed to start"):
        await listen(failing).__aenter__()
    assert open_sockets() == before
