"""Cases of hostile and mistaken input: law 10."""

from typing import Any

from tests.cases.loading import Case, Input, Json
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.client import Reply
from tests.serving import LiveServer
from tests.wire import completion

GOOD = {"model": "m", "prompt": "next", "max_tokens": 4}


async def send(live: LiveServer, request: Input) -> Reply:
    """A request of a case, as it stands there."""
    raw = request.raw.encode() or None
    body = None if raw else request.json
    headers = {name: value.encode() for name, value in request.headers.items()}
    return await live.client.request(request.method, request.path, body=body, raw=raw, headers=headers)


async def refused(live: LiveServer, request: Input, *, param: str | None) -> Reply:
    """Check that a request gets 400 naming the field, that the engine never sees it, and that the next one works."""
    before = len(live.engine.submitted)
    reply = await send(live, request)
    assert reply.status == 400, reply
    assert reply.error.type == "invalid_request_error"
    assert reply.error.param == param, reply.error
    assert len(live.engine.submitted) == before
    await works(live)
    return reply


async def works(live: LiveServer) -> None:
    """Check that a good request is answered."""
    assert completion(await live.client.post("/v1/completions", GOOD)).choice.text


@covers("TX-07")
async def empty_stops(case: Case, stage: Stage) -> None:
    *empty, none, null = case.requests
    async with stage.serve() as live:
        for request in empty:
            assert "stop" in (await refused(live, request, param="stop")).error.message
        without = completion(await live.client.post("/v1/completions", none.json | {"stop": ["\u0000never"]}))
        for request in (none, null):
            answered = completion(await send(live, request))
            assert answered.choice.text == without.choice.text
            assert answered.choice.finish_reason == without.choice.finish_reason


@covers("PR-13")
async def unknown_and_dependent_fields(case: Case, stage: Stage) -> None:
    unknown, dependent, mistyped = case.requests
    async with stage.serve() as live:
        reply = await send(live, unknown)
        assert reply.status == 200
        assert set(reply.headers["x-tailrace-ignored"].split(",")) == {"max_retries", "temprature"}
        await refused(live, dependent, param="stream_options")
        await refused(live, mistyped, param="stream")
    async with stage.serve(strict=True) as live:
        await refused(live, unknown, param="max_retries")


@covers("SE-01")
async def huge_and_infinite_numbers(case: Case, stage: Stage) -> None:
    top, samples, literal, negative, batch = case.requests
    async with stage.serve(max_logprobs=20) as live:
        await refused(live, top, param="top_logprobs_num")
        await refused(live, samples, param="sampling_params.n")
        await refused(live, literal, param=None)
        await refused(live, negative, param="max_tokens")
        await refused(live, batch, param="prompt")
        for field, value in [
            ("n", 5_000_000),
            ("logprobs", 1_000_000_000),
            ("logprobs", 21),
            ("max_tokens", 10**18),
            ("temperature", -1e308),
            ("top_k", 2**63),
            ("seed", 2**63),
            ("stop", ["x"] * 100_000),
            ("stop", "x" * 1_000_000),
            ("logit_bias", {str(token_id): 1 for token_id in range(5000)}),
            ("stop_token_ids", list(range(5000))),
            ("prompt", [2**40]),
            ("prompt", [-1]),
        ]:
            await refused(live, with_body(GOOD | {field: value}), param=field)
        for literal_value in ("1e400", "-Infinity", "Infinity"):
            raw = f'{{"model":"m","prompt":"a","temperature":{literal_value}}}'
            reply = await live.client.post("/v1/completions", raw=raw.encode())
            assert reply.status == 400, (literal_value, reply)
        chat = {"model": "m", "messages": [{"role": "user", "content": "a"}], "logprobs": True}
        await refused(live, Input.of("/v1/chat/completions", chat | {"top_logprobs": 10**9}), param="top_logprobs")


def with_body(body: dict[str, Any]) -> Input:
    """A completions request."""
    return Input.of("/v1/completions", body)


@covers("SE-07")
async def template_and_empty_input(case: Case, stage: Stage) -> None:
    no_messages, only_assistant, empty_turn, template_argument, empty, no_ids, empty_ids, prefill = case.requests
    async with stage.serve() as live:
        await refused(live, no_messages, param="messages")
        for request in (empty, no_ids, empty_ids):
            await refused(live, request, param="prompt")
        # The small model's template takes any order of roles and empty turns.
        for request in (only_assistant, empty_turn):
            assert (await send(live, request)).status == 200
        # A variable that the template does not read changes nothing.
        assert (await send(live, template_argument)).status == 200
        assert (await send(live, prefill)).status == 200
        continued = live.engine.submitted[-1].prompt_token_ids
        assert stage.tokenizer.decode(continued, skip_special_tokens=False).endswith("assistant\nSure, ")
        both = Input.of(prefill.path, prefill.json | {"add_generation_prompt": True})
        await refused(live, both, param="continue_final_message")


@covers("SE-08")
async def prompt_beyond_the_context(case: Case, stage: Stage) -> None:
    long, greedy = case.requests
    async with stage.serve() as live:
        reply = await refused(live, long, param="prompt")
        assert reply.error.code == "context_length_exceeded"
        assert str(live.engine.info.max_model_len) in reply.error.message
        assert reply.headers["content-type"] == "application/json"
        await refused(live, greedy, param="max_tokens")
        # Just over the limit, where only the tokenizer can tell.
        limit = live.engine.info.max_model_len
        prompt: list[Json] = [1] * limit
        reply = await refused(live, with_body(GOOD | {"prompt": prompt}), param="prompt")
        assert reply.error.code == "context_length_exceeded"
        assert f"{limit} tokens" in reply.error.message
