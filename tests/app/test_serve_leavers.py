"""Law 8: clients that leave, at whatever point and in whatever way, leave no trace; with every layer on."""

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from processors.gateway import Gateway
from processors.state import RequestState
from routers.answer import WholeAnswer
from routers.service import Service
from routers.stream import EventStream
from tests.client import GUARD, Client, RawConnection
from tests.serve_process import ServeProcess, metric, until_engine_is_empty
from tests.serving import LiveServer, serve

pytestmark = [pytest.mark.serve, pytest.mark.model]

HEADERS = {"Authorization": "Bearer KEY", "X-Request-Id": "leaver", "Origin": "http://elsewhere"}
LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "logprobs": 5}


def begin(connection: RawConnection, *, stream: bool, **changes: Any) -> None:
    """Send a request that would take minutes."""
    connection.send_request("POST", "/v1/completions", LONG | {"stream": stream} | changes, HEADERS)


async def leave(connection: RawConnection, place: int) -> None:
    """Every other one politely, the others as a crashed client does."""
    await (connection.close() if place % 2 else connection.reset())


async def until(client: Client, condition: Callable[[dict[str, float]], bool]) -> None:
    """Wait until what the engine says of its load fulfils a condition."""
    async with asyncio.timeout(GUARD):
        while True:
            load = {name: await metric(client, f"num_requests_{name}") for name in ("running", "waiting")}
            if condition(load):
                return


@contextlib.asynccontextmanager
async def several(server: ServeProcess, count: int) -> AsyncIterator[list[RawConnection]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server.connect()) for _ in range(count)]


async def leave_while_queued(server: ServeProcess, client: Client) -> None:
    """Two keep the engine busy; four wait behind them and leave first."""
    async with several(server, 6) as connections:
        for connection in connections[:2]:
            begin(connection, stream=True)
            await connection.read_until(b"data: ")
        for place, connection in enumerate(connections[2:]):
            begin(connection, stream=place < 2)
        await until(client, lambda load: load == {"running": 2, "waiting": 4})
        for place, connection in enumerate(connections[2:]):
            await leave(connection, place)
        await until(client, lambda load: load == {"running": 2, "waiting": 0})
        for place, connection in enumerate(connections[:2]):
            await leave(connection, place)


async def leave_before_the_first_event(server: ServeProcess, client: Client) -> None:
    """While the prompt is read in, in chunks."""
    made = await metric(client, "generation_tokens_total")
    async with several(server, 2) as connections:
        for place, connection in enumerate(connections):
            begin(connection, stream=True, prompt=[1000 + place] * 1000)
        await until(client, lambda load: load["running"] == 2)
        assert await metric(client, "generation_tokens_total") == made
        for place, connection in enumerate(connections):
            await leave(connection, place)


async def leave_amid_the_stream(server: ServeProcess, client: Client) -> None:
    async with several(server, 2) as connections:
        for place, connection in enumerate(connections):
            begin(connection, stream=True)
            for _ in range(3):
                await connection.read_until(b"\n\n")
            await leave(connection, place)


async def leave_a_whole_answer(server: ServeProcess, client: Client) -> None:
    async with several(server, 2) as connections:
        for connection in connections:
            begin(connection, stream=False)
        await until(client, lambda load: load["running"] == 2)
        for place, connection in enumerate(connections):
            await leave(connection, place)


async def test_leavers_leave_no_trace_in_the_server(guarded: ServeProcess) -> None:
    async with guarded.client() as client:
        assert (await client.post("/v1/completions", LONG | {"max_tokens": 2})).status == 200
        await until_engine_is_empty(client)
        before = guarded.descriptors
        left = await metric(client, "request_errors_total", code="left")
        for leave_it in (leave_while_queued, leave_before_the_first_event, leave_amid_the_stream, leave_a_whole_answer):
            await leave_it(guarded, client)
            await until_engine_is_empty(client)
        assert await metric(client, "request_errors_total", code="left") - left == 6 + 2 + 2 + 2
        async with asyncio.timeout(GUARD):
            while guarded.descriptors > before:
                assert (await client.get("/live")).status == 200
        assert (await client.post("/v1/completions", LONG | {"max_tokens": 2})).status == 200


@pytest.fixture
def engine(small_model_dir: Path) -> ScriptedEngine:
    options = ScriptedOptions(
        tokenizer=str(small_model_dir), vocab_size=49_152, eos_token_ids=(2,), max_running=100, queue_limit=1000
    )
    return ScriptedEngine(options)


def gateway_of(live: LiveServer) -> Gateway:
    service: Service = live.server.lifespan.state["service"]
    return service.gateway


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def states() -> list[object]:
    """What stands for live requests in this process."""
    gc.collect()
    return [known for known in gc.get_objects() if type(known) in {RequestState, EventStream, WholeAnswer}]


async def test_200_leavers_leave_no_task_descriptor_or_state(engine: ScriptedEngine) -> None:
    """Amid their streams, waiting for whole answers, before the first token, in the queue."""
    async with serve(Settings.model_validate({"api_key": "KEY"}), engine) as live:
        before, tasks = descriptors(), asyncio.all_tasks()
        leavers = [await live.connect() for _ in range(200)]
        for number, leaver in enumerate(leavers):
            begin(leaver, stream=number < 25 or number % 2 == 0)
            await live.engine.until_submitted(number + 1)
            if number == 49:
                engine.step()
        for leaver in leavers[:25]:
            await leaver.read_until(b"data: ")
        assert (engine.running, engine.waiting, gateway_of(live).running) == (100, 100, 200)
        assert len(asyncio.all_tasks() - tasks) >= 200
        assert len(states()) == 400
        for number, leaver in enumerate(leavers):
            await leave(leaver, number // 2)
        await live.engine.until_empty()
        await live.settle()
        assert sorted(live.engine.aborted) == sorted(request.id for request in live.engine.submitted)
        assert (engine.running, engine.waiting, gateway_of(live).running) == (0, 0, 0)
        assert not engine.step()
        assert not asyncio.all_tasks() - tasks
        assert not states()
        assert descriptors() <= before
