import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.factory import create_app
from app.settings import Settings
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from tests.app.layered import recorded
from tests.client import Client, Reply
from tests.listening import listen
from tests.serving import serve

pytestmark = pytest.mark.model

BODY = {"prompt": "Hello", "max_tokens": 3}


@pytest.fixture
def options(small_model_dir: Path) -> ScriptedOptions:
    return ScriptedOptions(tokenizer=str(small_model_dir), vocab_size=49_152, eos_token_ids=(2,), step_ms=0)


def value_of(reply: Reply, series: str) -> float:
    (line,) = [line for line in reply.body.decode().splitlines() if line.startswith(series + " ")]
    return float(line.rpartition(" ")[2])


async def test_two_apps_in_one_process_share_nothing(options: ScriptedOptions) -> None:
    one = create_app(Settings(served_model_name="one"), ScriptedEngine(options))
    two = create_app(Settings(served_model_name="two", api_key=SecretStr("k")), ScriptedEngine(options))
    async with listen(one) as first, listen(two) as second:
        clients = [Client(f"http://127.0.0.1:{server.port}") for server in (first, second)]
        assert (await clients[0].post("/v1/completions", BODY)).status == 200
        assert (await clients[1].post("/v1/completions", BODY)).status == 401
        counted = [await client.get("/metrics") for client in clients]
        series = 'tailrace:request_success_total{engine="scripted",finished_reason="length",model_name="one"}'
        assert value_of(counted[0], series) == 1
        assert b"request_success_total{" not in counted[1].body
        assert b'model_name="two"' in counted[1].body
        for client in clients:
            await client.close()


def test_an_app_runs_on_one_loop_after_the_other(options: ScriptedOptions) -> None:
    """CO-05: nothing of a first run is bound to its loop."""

    async def once() -> None:
        async with serve(Settings(), ScriptedEngine(options)) as live:
            assert (await live.client.post("/v1/completions", BODY)).status == 200
            assert await live.client.events("/v1/completions", BODY)

    for _ in range(2):
        asyncio.run(once())


async def test_metrics_of_a_known_request(options: ScriptedOptions) -> None:
    async with serve(Settings(served_model_name="m"), ScriptedEngine(options)) as live:
        for _ in range(2):
            reply = await live.client.post("/v1/completions", BODY | {"logprobs": 1})
        counted = await live.client.get("/metrics")
    labels = 'engine="scripted",model_name="m"'
    assert reply.json["usage"]["completion_tokens"] == 3
    assert value_of(counted, f"tailrace:generation_tokens_total{{{labels}}}") == 6
    assert value_of(counted, f"tailrace:prompt_tokens_total{{{labels}}}") == 2 * reply.json["usage"]["prompt_tokens"]
    assert value_of(counted, f"tailrace:logprob_rows_total{{{labels}}}") == 6
    assert value_of(counted, f"tailrace:time_to_first_token_seconds_count{{{labels}}}") == 2
    assert value_of(counted, f"tailrace:inter_token_latency_seconds_count{{{labels}}}") == 4
    assert value_of(counted, f"tailrace:e2e_request_latency_seconds_count{{{labels}}}") == 2
    assert value_of(counted, f"tailrace:engine_up{{{labels}}}") == 1
    http = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"}'
    assert value_of(counted, http) == 2


async def test_paths_are_not_redirected_and_the_schema_is_served(options: ScriptedOptions) -> None:
    async with serve(Settings(), ScriptedEngine(options)) as live:
        assert (await live.client.post("/v1/completions/", BODY)).status == 404
        schema = (await live.client.get("/openapi.json")).json
        assert {"/v1/completions", "/v1/chat/completions", "/metrics", "/ready"} <= set(schema["paths"])


async def test_one_access_line_per_stream(options: ScriptedOptions) -> None:
    with recorded("tailrace.access") as log:
        async with serve(Settings(), ScriptedEngine(options)) as live:
            await live.client.events("/v1/completions", BODY, headers={"x-request-id": "mine"})
            (record,) = await log.wait_for(1)
    assert vars(record)["status"] == 200
    assert vars(record)["request_id"] == "mine"
