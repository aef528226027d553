"""The ordered end of `tailrace serve` under streams: SIGTERM, Ctrl-C, and a second signal."""

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from tests.client import GUARD, Client, RawConnection, Reply
from tests.serve_process import metric, serve_process
from tests.wire import completion, join_completion

pytestmark = [pytest.mark.serve, pytest.mark.model]

SCRIPTED = ("--engine", "scripted", "--scripted-step-ms", "20")
SHORT: dict[str, Any] = {"prompt": "x", "max_tokens": 75, "return_token_ids": True}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
ENDLESS: dict[str, Any] = {"prompt": "x", "max_tokens": 8000}


async def until_running(client: Client, count: int) -> None:
    async with asyncio.timeout(GUARD):
        while await metric(client, "num_requests_running") < count:
            pass


async def until_draining(client: Client) -> None:
    async with asyncio.timeout(GUARD):
        while (reply := await client.get("/ready")).status == 200:
            pass
    check_refusal(reply)


def check_refusal(reply: Reply) -> None:
    assert (reply.status, reply.error.code) == (503, "draining")
    assert reply.headers["retry-after"] == "1"


async def ask_on(connection: RawConnection, body: dict[str, Any]) -> tuple[int, Any]:
    """Ask for work on a connection; the status and the body of the answer."""
    connection.send_request("POST", "/v1/completions", body)
    head = await connection.read_until(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    async with asyncio.timeout(GUARD):
        return int(head.split()[1]), msgspec.json.decode(await connection.reader.readexactly(length))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_work_finishes_or_ends_with_an_error_and_new_work_is_refused(number: signal.Signals) -> None:
    """On a connection that was kept alive and on new ones; the exit code is 0."""
    with serve_process(*SCRIPTED, "--drain-timeout", "5") as server:
        async with server.client() as client, server.client() as late, server.connect() as kept:
            status, answer = await ask_on(kept, {"prompt": "x", "max_tokens": 1})
            assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
            streams = [asyncio.create_task(client.events("/v1/completions", body)) for body in (SHORT, ENDLESS)]
            wholes = [asyncio.create_task(client.post("/v1/completions", body)) for body in (SHORT, ENDLESS)]
            await until_running(client, 4)
            server.signal(number)
            await until_draining(late)
            for stream in (False, True):
                status, answer = await ask_on(kept, SHORT | {"stream": stream})
                assert (status, answer["error"]["code"]) == (503, "draining")
                async with server.connect() as fresh:
                    status, answer = await ask_on(fresh, SHORT | {"stream": stream})
                assert (status, answer["error"]["code"]) == (503, "draining")
                check_refusal(await late.post("/v1/chat/completions", CHAT | {"stream": stream}))
            assert (await late.get("/live")).status == 200
            short, endless = await asyncio.gather(*streams)
            for choice in (join_completion(short).choice, completion(await wholes[0]).choice):
                assert (choice.finish_reason, len(choice.token_ids or [])) == ("length", 75)
            assert endless[-1]["error"]["code"] == "aborted"
            reply = await wholes[1]
            assert (reply.status, reply.error.code) == (503, "aborted")
            assert await server.exit() == 0


async def test_a_second_signal_ends_at_once() -> None:
    with serve_process(*SCRIPTED, "--drain-timeout", "1000") as server:
        async with server.client() as client, server.connect() as stream:
            stream.send_request("POST", "/v1/completions", ENDLESS | {"stream": True})
            await stream.read_until(b"data: ")
            server.signal(signal.SIGTERM)
            await until_draining(client)
            server.signal(signal.SIGINT)
            assert await server.exit() == 128 + signal.SIGINT
