"""Law 2 over the whole app: for every pair of options of a route, the stream joined is the answer that comes whole."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engines.scripted.script import Script
from tests.cases.stage import Stage
from tests.processors.dialects.joining import join_chats, join_completions
from tests.serving import LiveServer

Options = Mapping[str, list[dict[str, Any]]]
Body = dict[str, Any]
TEXT = "One 🙂 two, 漢字 é and STOP then on"

OPENAI: Options = {
    "n": [{}, {"n": 2}],
    "prompt_logprobs": [{}, {"prompt_logprobs": 0}, {"prompt_logprobs": 2}],
    "chosen": [{}, {"logprob_token_ids": [40, 30, 35]}],
    "format": [{}, {"logprob_format": "vllm"}, {"logprob_format": "sglang"}, {"logprob_format": "both"}],
    "mode": [{}, {"logprobs_mode": "processed_logprobs"}],
    "stop": [{}, {"stop": ["STOP", "x"]}, {"stop": "two"}],
    "include_stop": [{}, {"include_stop_str_in_output": True}],
    "special": [{}, {"skip_special_tokens": False}],
    "ids": [{}, {"return_token_ids": True}],
    "as_ids": [{}, {"return_tokens_as_token_ids": True}],
    "usage": [
        {},
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ],
}
COMPLETIONS: Options = {
    **OPENAI,
    "prompt": [
        {"prompt": "Hé 🙂"},
        {"prompt": [40, 41, 300]},
        {"prompt": ["A b", "C 漢"]},
        {"prompt": [[50], [51, 52]]},
    ],
    "echo": [{}, {"echo": True, "max_tokens": 0}, {"echo": True}],
    "logprobs": [{}, {"logprobs": 0}, {"logprobs": 1}, {"logprobs": 5}],
}
CHAT: Options = {
    **OPENAI,
    "messages": [
        {"messages": [{"role": "user", "content": "Hé 🙂"}]},
        {
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So 漢"}],
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
    ],
    "echo": [{}, {"echo": True}],
    "logprobs": [{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 5}],
}
GENERATE: Options = {
    "prompt": [
        {"text": "Hé 🙂"},
        {"text": ["A b", "C 漢"]},
        {"input_ids": [40, 41, 300]},
        {"input_ids": [[50], [51, 52]]},
    ],
    "logprobs": [{}, {"return_logprob": True}, {"return_logprob": True, "top_logprobs_num": 3}],
    "start": [{}, {"logprob_start_len": 0}, {"logprob_start_len": 1}],
    "chosen": [{}, {"token_ids_logprob": [40, 30, 35]}],
    "format": [{}, {"logprob_format": "openai"}, {"logprob_format": "vllm"}, {"logprob_format": "both"}],
    "texts": [{}, {"return_text_in_logprobs": True}],
    "states": [{}, {"return_hidden_states": True}],
    "incremental": [{}, {"incremental": True}],
    "n": [{}, {"sampling": {"n": 2}}],
    "stop": [{}, {"sampling": {"stop": ["STOP", "x"]}}],
    "trim": [{}, {"sampling": {"no_stop_trim": True}}],
}


def pairs(options: Options) -> Iterator[Body]:
    """Every value of every option with every value of every other one; each body once.

    The rest is at its first value, which asks for nothing, and then at its last, which asks for all there is.
    """
    seen: list[Body] = []
    for rest, (one, other) in itertools.product((0, -1), itertools.combinations(options, 2)):
        for chosen in itertools.product(options[one], options[other]):
            body: Body = {}
            for name, values in options.items():
                value = chosen[0] if name == one else chosen[1] if name == other else values[rest]
                body |= value | {"sampling": body.get("sampling", {}) | value.get("sampling", {})}
            if body not in seen:
                seen.append(body)
                yield body


@contextlib.asynccontextmanager
async def started(stage: Stage) -> AsyncIterator[LiveServer]:
    """A server whose engine sends tokens in uneven groups, some without any, and a finish apart."""
    async with stage.serve() as server:
        token_ids = [*stage.ids(TEXT), stage.eos]
        states = [[float(place)] for place in range(len(token_ids))]
        stage.say(Script(token_ids=token_ids, grouping=[2, 0, 1, 3], finish_apart=True, hidden_states=states))
        yield server


async def answers(live: LiveServer, path: str, body: Body) -> tuple[Any, list[Any]]:
    """The same request whole and streamed."""
    whole = {name: value for name, value in body.items() if name != "stream_options"}
    reply = await live.client.post(path, whole)
    assert reply.status == 200, (body, reply)
    return reply.json, await live.client.events(path, body)


def check_openai(body: Body, whole: Any, chunks: list[Any], joined: dict[int, Any]) -> None:
    assert [joined[index] for index in range(len(whole["choices"]))] == whole["choices"], body
    assert {chunk.get("logprobs_mode") for chunk in chunks} == {whole.get("logprobs_mode")}, body
    if "stream_options" in body:
        last = chunks[-1]["usage"]
        assert last == whole["usage"], body


@pytest.fixture
def stage(small_model_dir: Path, tmp_path: Path) -> Stage:
    """The scripted engine with the small model's tokenizer."""
    return Stage(small_model_dir, tmp_path)


@pytest.mark.model
async def test_law_2_completions(stage: Stage) -> None:
    async with started(stage) as live:
        for pair in pairs(COMPLETIONS):
            body = {"max_tokens": 32} | {name: value for name, value in pair.items() if name != "sampling"}
            if "logprob_token_ids" in body:
                body = {"logprobs": 3} | body
            whole, chunks = await answers(live, "/v1/completions", body)
            check_openai(body, whole, chunks, join_completions([chunk for chunk in chunks if chunk["choices"]]))


@pytest.mark.model
async def test_law_2_chat(stage: Stage) -> None:
    async with started(stage) as live:
        for pair in pairs(CHAT):
            body = {"max_tokens": 32} | {name: value for name, value in pair.items() if name != "sampling"}
            if "logprob_token_ids" in body:
                body |= {"logprobs": True}
            whole, chunks = await answers(live, "/v1/chat/completions", body)
            check_openai(body, whole, chunks, join_chats([chunk for chunk in chunks if chunk["choices"]]))
            pieces = [entry for chunk in chunks for entry in chunk.get("prompt_logprobs", [])]
            assert pieces == whole.get("prompt_logprobs", []), body
            assert chunks[0].get("prompt_token_ids") == whole.get("prompt_token_ids"), body


@pytest.mark.model
async def test_law_2_generate(stage: Stage) -> None:
    async with started(stage) as live:
        for pair in pairs(GENERATE):
            sampling = {"max_new_tokens": 32, **pair["sampling"]}
            body = {name: value for name, value in pair.items() if name != "sampling"} | {"sampling_params": sampling}
            whole, events = await answers(live, "/generate", body)
            wholes = whole if isinstance(whole, list) else [whole]
            assert all(("index" in event) == isinstance(whole, list) for event in events), body
            for index, expected in enumerate(wholes):
                own = [event for event in events if event.get("index", 0) == index]
                assert [event["meta_info"]["finish_reason"] for event in own[:-1]] == [None] * (len(own) - 1)
                said = joined_increments(own) if body.get("incremental") else own[-1]
                assert timeless(said) == timeless(expected), body


def joined_increments(events: list[Any]) -> Any:
    """What a reader of increments has in the end: lists and text appended, totals the latest.

    The length of the list of output logprobs is that of the list beside it.
    """
    said = events[0]
    for event in events[1:]:
        said["text"] += event["text"]
        said["output_ids"] += event["output_ids"]
        before = said["meta_info"]
        said["meta_info"] = before | event["meta_info"]
        for name, value in event["meta_info"].items():
            if isinstance(value, list) or name == "output_token_logprobs_length":
                said["meta_info"][name] = before.get(name, type(value)()) + value
            elif name == "logprobs":
                said["meta_info"][name] = {"content": before[name]["content"] + value["content"]}
    return said


def timeless(answer: Any) -> Any:
    """Without what differs from request to request."""
    meta = {name: value for name, value in answer["meta_info"].items() if name not in {"id", "e2e_latency"}}
    return {"text": answer["text"], "output_ids": answer["output_ids"], "meta_info": meta}
