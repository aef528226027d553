"""Cases of the connection: leavers, keys, ids, shutdown, several apps: laws 7, 8 and 12."""

import asyncio
from typing import Any

from engines.scripted.script import Script
from tests.cases.loading import Case
from tests.cases.refusals import send
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.client import Client
from tests.serving import LiveServer
from tests.wire import chat, completion

LONG: dict[str, Any] = {"model": "m", "prompt": "x", "max_tokens": 1000, "ignore_eos": True}


@covers("CO-01")
async def leavers_are_noticed(case: Case, stage: Stage) -> None:
    """With every layer on: leaving takes the request with it, streamed or not, before the first token and after."""
    path, body = case.request.path, case.request.json
    headers = {"Authorization": "Bearer KEY", "Origin": "http://x", "X-Request-Id": "leaver"}
    async with stage.serve(stepped=True, api_key="KEY") as live:
        for streamed in (False, True):
            for steps in (0, 5):
                for politely in (True, False):
                    count = len(live.engine.submitted) + 1
                    connection = await live.connect()
                    connection.send_request("POST", path, body | {"stream": streamed}, headers)
                    await live.engine.until_submitted(count)
                    for _ in range(steps):
                        stage.engine.step()
                    if streamed and steps:
                        await connection.read_until(b'"content":"Hello')
                    await (connection.close() if politely else connection.reset())
                    await live.engine.until_empty()
                    assert live.engine.aborted == [request.id for request in live.engine.submitted]
                    await live.settle()
        # Several samples and several prompts leave together.
        for several in ({"prompt": "novel", "n": 3}, {"prompt": ["novel", "poem", "song"]}):
            count = len(live.engine.submitted) + 3
            connection = await live.connect()
            connection.send_request("POST", "/v1/completions", several | {"max_tokens": 4000}, headers)
            await live.engine.until_submitted(count)
            stage.engine.step()
            await connection.reset()
            await live.engine.until_empty()
            assert live.engine.aborted == [request.id for request in live.engine.submitted]
        assert not stage.engine.running


@covers("CO-05")
async def apps_share_nothing(case: Case, stage: Stage) -> None:
    """Many streams leave no task behind; two apps run on two loops of one process at once, and again afterwards."""
    async with stage.serve() as live:
        for _ in range(5):
            await asyncio.gather(*(live.client.events("/v1/completions", LONG | {"max_tokens": 3}) for _ in range(40)))
        await live.settle()

    async def elsewhere() -> None:
        other = Stage(stage.model_dir, stage.scratch)
        async with other.serve() as live:
            events = await live.client.events("/v1/completions", {"model": "m", "prompt": "x"})
            assert len(events) > 1

    async with stage.serve() as live:
        for _ in range(2):
            await asyncio.to_thread(asyncio.run, elsewhere())
            assert len(await live.client.events("/v1/completions", {"model": "m", "prompt": "x"})) > 1


@covers("CO-06")
async def ordered_drain(case: Case, stage: Stage) -> None:
    """After SIGTERM: ready says 503, new work gets 503, what can end ends, the rest ends by an error."""
    async with stage.serve(stepped=True, drain_timeout=0.5) as live:
        stage.say(Script(token_ids=stage.ids("on and on and on"), cycle=True))
        short = [asyncio.create_task(finished(live)) for _ in range(3)]
        long = [asyncio.create_task(live.client.events("/v1/completions", LONG)) for _ in range(3)]
        whole = [asyncio.create_task(live.client.post("/v1/completions", LONG)) for _ in range(3)]
        await live.engine.until_submitted(9)
        stage.engine.step()
        late = live.another_client()
        assert (await late.get("/ready")).status == 200
        live.server.terminate()
        await refuses_new_work(late)
        for _ in range(10):
            stage.engine.step()
        assert await asyncio.gather(*short) == ["length"] * 3
        for events in await asyncio.gather(*long):
            assert events[-1]["error"]["code"] == "aborted"
        for reply in await asyncio.gather(*whole):
            assert (reply.status, reply.error.code) == (503, "aborted")
        await live.engine.until_empty()


async def finished(live: LiveServer) -> str | None:
    """The finish reason of a request that needs few tokens."""
    return completion(await live.client.post("/v1/completions", LONG | {"max_tokens": 4})).choice.finish_reason


async def refuses_new_work(client: Client) -> None:
    """Wait until the server says that it drains, then ask for work."""
    while (await client.get("/ready")).status == 200:
        pass
    for streamed in (False, True):
        reply = await client.post("/v1/completions", LONG | {"stream": streamed})
        assert (reply.status, reply.error.code) == (503, "draining")
        assert int(reply.headers["retry-after"]) >= 0
    assert (await client.get("/live")).status == 200


@covers("CO-07")
async def idle_connections_stay(case: Case, stage: Stage) -> None:
    """Longer than common proxies keep theirs, which is 60 to 90 seconds."""
    async with stage.serve() as live:
        assert live.server.config.timeout_keep_alive > 90
        connection = await live.connect()
        for _ in range(3):
            connection.send_request("GET", "/live")
            head = (await connection.read_until(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200")
            assert b"connection: close" not in head


@covers("CO-09")
async def nothing_buffers(case: Case, stage: Stage) -> None:
    """Headers that keep proxies from buffering; each event leaves as it is made, whatever the client accepts."""
    async with (
        stage.serve(stepped=True) as live,
        stage.open_stream(live, case.request.path, case.request.json) as stream,
    ):
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.headers
        assert (await stream.next())["choices"][0]["delta"]["role"] == "assistant"
        assert (await stream.next())["choices"][0]["delta"]["content"] == "Hello"
        for text in (" there", ",", " world"):
            stage.engine.step()
            assert (await stream.next())["choices"][0]["delta"]["content"] == text


@covers("CO-10")
async def health_of_a_dead_engine(case: Case, stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        for path in ("/live", "/ready", "/health"):
            assert (await live.client.get(path)).status == 200
        waiting = asyncio.create_task(live.client.post("/v1/completions", LONG))
        await live.engine.until_submitted(1)
        stage.engine.kill("SIGKILL")
        reply = await waiting
        assert (reply.status, reply.error.code) == (503, "engine_died")
        assert (await live.client.get("/live")).status == 200
        for path in ("/ready", "/health", "/health_generate"):
            reply = await live.client.get(path)
            assert (reply.status, reply.error.code) == (503, "engine_unavailable")
        stage.engine.revive()
        for path in ("/ready", "/health"):
            assert (await live.client.get(path)).status == 200


@covers("SE-05")
async def request_ids(case: Case, stage: Stage) -> None:
    """Theirs is echoed on every answer, ours is unique; what is no fit header value is replaced."""
    path, body = case.request.path, case.request.json
    async with stage.serve() as live:
        headers = case.request.headers
        replies = await asyncio.gather(
            *(live.client.post(path, body | {"stream": False}, headers=headers) for _ in range(2))
        )
        for reply in replies:
            assert chat(reply).choice.text == "Hello there, world."
            assert reply.headers["x-request-id"] == "same-id"
        await live.client.post(path, body | {"stream": False}, headers=headers)
        assert len({request.id for request in live.engine.submitted}) == 3
        assert not any("same-id" in request.id for request in live.engine.submitted)
        # SGLang's rid: repeated in a batch and live twice at once; echoed, and never the engine's id.
        native = {"text": ["a", "b"], "rid": ["twin", "twin"], "sampling_params": {"max_new_tokens": 1}}
        for reply in await asyncio.gather(*(live.client.post("/generate", native) for _ in range(2))):
            assert [each["meta_info"]["id"] for each in reply.json] == ["twin", "twin"]
        assert len({request.id for request in live.engine.submitted}) == 7
        too_long = await live.client.post("/generate", {"text": "a", "rid": "x" * 1_000_000})
        assert (too_long.status, too_long.error.param is not None) == (400, True)
        refusal = await live.client.post(path, {}, headers=headers)
        assert (refusal.status, refusal.headers["x-request-id"]) == (400, "same-id")
        for value in (b"x" * 10_000, b"a b", b"\xfc", b"a;b", b""):
            reply = await live.client.get("/live", headers={"X-Request-Id": value})
            assert reply.status == 200
            assert reply.headers["x-request-id"].encode() != value
        connection = await live.connect()
        connection.send(b"GET /live HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\r\n evil: 1\r\n\r\n")
        assert b"evil" not in await connection.read_until(b"\r\n\r\n")


@covers("SE-06")
async def api_keys(case: Case, stage: Stage) -> None:
    _, wrong, lower, umlaut = case.requests
    good = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with stage.serve(api_key="KEY") as live:
        for request in (wrong, umlaut):
            reply = await send(live, request)
            assert (reply.status, reply.error.code) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
        # Refused before the body is parsed, let alone read.
        reply = await live.client.post("/v1/chat/completions", raw=b"{")
        assert reply.status == 401
        reply = await live.client.post(lower.path, good, headers=lower.headers)
        assert reply.status == 200
        for path in ("/live", "/ready", "/health", "/metrics", "/ping", "/version"):
            assert (await live.client.get(path)).status == 200
        for path in ("/v1/models", "/tokenize", "/docs", "/openapi.json", "/nowhere"):
            assert (await live.client.get(path)).status == 401
    async with stage.serve(api_key="schlüssel") as live:
        for key, status in (("schlüssel", 200), ("schlussel", 401)):
            headers = {"Authorization": f"Bearer {key}".encode()}
            assert (await live.client.post("/v1/chat/completions", good, headers=headers)).status == status
