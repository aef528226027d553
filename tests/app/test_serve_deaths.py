"""kill -9 of either process of `tailrace serve`: clients are told, the engine comes back, nothing is left behind."""

import asyncio
import signal
from typing import Any

import httpx2
import psutil
import pytest

from tests.client import GUARD, Client
from tests.serve_process import START_GUARD, ServeProcess, metric, serve_process
from tests.wire import completion

pytestmark = [pytest.mark.serve, pytest.mark.model]

GREEDY: dict[str, Any] = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
MESSAGES = [{"role": "user", "content": "x"}]
LONG: dict[str, Any] = GREEDY | {"max_tokens": 4000, "ignore_eos": True}


async def text_of(client: Client) -> str:
    return completion(await client.post("/v1/completions", GREEDY)).choice.text


async def until(client: Client, name: str, value: float) -> None:
    async with asyncio.timeout(GUARD):
        while await metric(client, name) != value:
            pass


async def until_ready(client: Client) -> None:
    async with asyncio.timeout(START_GUARD):
        while (await client.get("/ready")).status != 200:
            pass


async def test_the_engine_killed_under_streams_is_told_and_comes_back(guarded: ServeProcess) -> None:
    async with guarded.client() as client:
        text = await text_of(client)
        worker = guarded.worker
        async with client.stream("/v1/completions", LONG) as stream:
            await stream.next()
            whole = asyncio.create_task(client.post("/v1/completions", LONG))
            await until(client, "num_requests_running", 2)
            queued = asyncio.create_task(client.post("/v1/chat/completions", {"messages": MESSAGES, "stream": True}))
            await until(client, "num_requests_waiting", 1)
            worker.kill()
            *_, last = await stream.rest()
            assert last["error"]["code"] == "engine_died"
        for reply in (await whole, await queued):
            assert (reply.status, reply.error.code) == (503, "engine_died")
        reply = await client.get("/ready")
        assert (reply.status, reply.error.code) == (503, "engine_unavailable")
        reply = await client.post("/v1/completions", GREEDY)
        assert (reply.status, reply.error.code) == (503, "engine_unavailable")
        assert await metric(client, "engine_up") == 0
        assert (await client.get("/live")).status == 200
        await until_ready(client)
        assert guarded.worker.pid != worker.pid
        assert await text_of(client) == text
        assert await metric(client, "engine_up") == 1
        assert "SIGKILL" in guarded.log


async def kill_under_a_stream(server: ServeProcess, client: Client) -> None:
    async with client.stream("/v1/completions", LONG) as stream:
        await stream.next()
        server.signal(signal.SIGKILL)
        await stream.rest()


@pytest.mark.usefixtures("small_model_dir")
async def test_the_engine_does_not_outlive_a_killed_gateway() -> None:
    """Under a stream: the engine's process ends by itself, the client sees a broken connection."""
    with serve_process("--dtype", "float32") as server:
        worker: psutil.Process = server.worker
        async with server.client() as client:
            with pytest.raises(httpx2.TransportError):
                await kill_under_a_stream(server, client)
        assert await server.exit() == -signal.SIGKILL
        await asyncio.to_thread(worker.wait, GUARD)


def test_a_second_start_converts_nothing(served: ServeProcess) -> None:
    """The model is there by then. How long it may take is START_GUARD's to say."""
    assert "loaded" in served.log
    assert "convert" not in served.log
