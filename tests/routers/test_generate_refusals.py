"""Law 10 on /generate: what is refused, in which shape, and that the next request works."""

from typing import Any

import pytest

from tests.cases.stage import Stage
from tests.generate_wire import PATH, generated
from tests.serving import LiveServer

IN_SAMPLING = "sampling_params."
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "text"),
    ({"text": "a", "input_ids": [1]}, "text"),
    ({"text": ""}, "text"),
    ({"text": []}, "text"),
    ({"text": ["a", ""]}, "text"),
    ({"input_ids": []}, "input_ids"),
    ({"input_ids": [[]]}, "input_ids"),
    ({"input_ids": [[1], []]}, "input_ids"),
    ({"input_ids": [-1]}, "input_ids"),
    ({"input_ids": [2**40]}, "input_ids"),
    ({"input_ids": [[1], [10**6]]}, "input_ids"),
    ({"text": "a", "sampling_params": {"temprature": 1}}, IN_SAMPLING + "temprature"),
    ({"text": "a", "sampling_params": {"n": 5_000_000}}, IN_SAMPLING + "n"),
    ({"text": ["a"] * 1000, "sampling_params": {"n": 2}}, IN_SAMPLING + "n"),
    ({"text": "a", "sampling_params": {"max_new_tokens": 10**15}}, IN_SAMPLING + "max_new_tokens"),
    ({"text": "a", "sampling_params": {"min_new_tokens": 3, "max_new_tokens": 2}}, IN_SAMPLING + "min_new_tokens"),
    ({"text": "a", "sampling_params": {"stop_token_ids": [-4]}}, IN_SAMPLING + "stop_token_ids"),
    ({"text": "a", "sampling_params": {"logit_bias": {"99999999": 1.0}}}, IN_SAMPLING + "logit_bias"),
    ({"text": "a", "sampling_params": {"logit_bias": {"x": 1.0}}}, IN_SAMPLING + "logit_bias"),
    ({"text": "a", "return_logprob": True, "top_logprobs_num": 10**9}, "top_logprobs_num"),
    ({"text": "a", "return_logprob": True, "top_logprobs_num": 21}, "top_logprobs_num"),
    ({"text": "a", "return_logprob": True, "top_logprobs_num": -1}, "top_logprobs_num"),
    ({"text": "a", "return_logprob": True, "token_ids_logprob": [10**6]}, "token_ids_logprob"),
    ({"text": "a", "return_logprob": True, "token_ids_logprob": [4, 4]}, "token_ids_logprob"),
    ({"text": "a", "return_logprob": True, "logprob_start_len": -2}, "logprob_start_len"),
    ({"text": "a", "return_logprob": True, "logprob_start_len": 2}, "logprob_start_len"),
    ({"text": "a", "logprob_format": "smg"}, "logprob_format"),
    ({"text": "a", "logprobs_mode": "raw_logits"}, "logprobs_mode"),
    ({"text": "a", "rid": ""}, "rid"),
    ({"text": "a", "rid": "x" * 129}, "rid"),
    ({"text": "a", "priority": 2**63}, "priority"),
    ({"text": 5}, "text"),
    ({"input_ids": [[1], ["x"]]}, "input_ids.1.0"),
    ({"text": "a", "sampling_params": 5}, "sampling_params"),
    ({"text": ["a", "b"], "sampling_params": [{}, {"top_p": 2}]}, IN_SAMPLING + "1.top_p"),
]


async def check_refused(live: LiveServer, body: dict[str, Any], param: str, code: str = "invalid_value") -> None:
    """400 whether streamed or not, naming the field; the engine never hears of it and a good request is answered."""
    before = len(live.engine.submitted)
    for streamed in (False, True):
        reply = await live.client.post(PATH, body | {"stream": streamed})
        assert reply.status == 400, reply
        assert (reply.error.param, reply.error.code) == (param, code), reply.error
        assert reply.error.type == "invalid_request_error"
    assert len(live.engine.submitted) == before
    assert generated(await live.client.post(PATH, {"text": "fine"}))[0].text


async def test_law_10_the_field_is_named(stage: Stage) -> None:
    async with stage.serve() as live:
        for body, param in WRONG:
            await check_refused(live, body, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"lora_path": "x"}, "lora_path"),
        ({"return_routed_experts": True}, "return_routed_experts"),
        ({"sampling_params": {"regex": "a*"}}, IN_SAMPLING + "regex"),
        ({"sampling_params": {"json_schema": "{}"}}, IN_SAMPLING + "json_schema"),
    ],
)
async def test_what_is_not_done_is_refused_by_name(stage: Stage, fields: dict[str, Any], param: str) -> None:
    async with stage.serve() as live:
        await check_refused(live, {"text": "a"} | fields, param, "unsupported_feature")


async def test_values_that_ask_for_nothing_pass(stage: Stage) -> None:
    body: dict[str, Any] = {
        "text": "a",
        "lora_path": None,
        "image_data": [],
        "sampling_params": {"regex": None, "stop_regex": []},
    }
    async with stage.serve() as live:
        assert generated(await live.client.post(PATH, body))[0].text


async def test_unknown_fields_are_reported_and_in_strict_mode_refused(stage: Stage) -> None:
    body = {"text": "a", "max_retries": 3, "log_metrics": False}
    async with stage.serve() as live:
        reply = await live.client.post(PATH, body)
        assert reply.status == 200
        assert set(reply.headers["x-tailrace-ignored"].split(",")) == {"max_retries", "log_metrics"}
    async with stage.serve(strict=True) as live:
        await check_refused(live, body, "max_retries")


async def test_a_prompt_beyond_the_context_has_its_own_code(stage: Stage) -> None:
    async with stage.serve() as live:
        limit = live.engine.info.max_model_len
        long: list[dict[str, Any]] = [{"input_ids": [1] * limit}, {"text": "x" * 2_000_000}]
        for body in long:
            (param,) = body
            await check_refused(live, body, param, "context_length_exceeded")


async def test_a_member_of_a_batch_refuses_all_of_it(stage: Stage) -> None:
    async with stage.serve() as live:
        await check_refused(live, {"input_ids": [[1], [2], [10**6]]}, "input_ids")
        assert len(live.engine.submitted) == 1
