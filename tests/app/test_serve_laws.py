"""Laws 2 and 4 of the stream on `tailrace serve` with the real model."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.client import Client
from tests.reference_model import TOLERANCE, ReferenceModel
from tests.serve_process import ServeProcess
from tests.wire import (
    Chat,
    ChatLogprobs,
    Completion,
    CompletionChoice,
    LegacyLogprobs,
    chat,
    completion,
    join_chat,
    join_completion,
)

pytestmark = [pytest.mark.serve, pytest.mark.model]

EMOJI = "🙂 🎉 🐈 🙂 🎉 🐈 🙂 🎉"
FRANCE = "The capital of France is"
KANJI = "漢字漢字漢字漢字"
COUNT = 12
GREEDY = {"max_tokens": COUNT, "temperature": 0, "return_token_ids": True}
COMPLETIONS: list[dict[str, Any]] = [
    {"prompt": EMOJI, "logprobs": 5, "ignore_eos": True},
    {"prompt": KANJI, "logprobs": 0, "max_tokens": 10, "return_tokens_as_token_ids": True},
    {"prompt": EMOJI, "logprobs": 2, "stop": ["🎉"]},
    {"prompt": EMOJI, "logprobs": 2, "stop": ["🐈 🎉🐈", "x"], "include_stop_str_in_output": True},
    {"prompt": FRANCE, "logprobs": 3, "stop": ["answer"], "min_tokens": 5},
    {"prompt": FRANCE, "echo": True, "max_tokens": 4},
    {"prompt": [504, 3575, 282, 4649, 314], "logprobs": 1, "stop_token_ids": [198], "skip_special_tokens": False},
    {"prompt": FRANCE, "logprobs": 20, "logprobs_mode": "processed_logprobs", "logit_bias": {"198": -100}},
]
CHATS: list[dict[str, Any]] = [
    {"logprobs": True, "top_logprobs": 4, "skip_special_tokens": False, "max_tokens": 16},
    {"logprobs": True, "stop": ["math"]},
]


async def both_completions(client: Client, body: dict[str, Any]) -> tuple[Completion, Completion]:
    """The streamed answer, joined, and the whole one."""
    streamed = await client.events("/v1/completions", body | {"stream_options": {"include_usage": True}})
    return join_completion(streamed), completion(await client.post("/v1/completions", body))


async def both_chats(client: Client, body: dict[str, Any]) -> tuple[Chat, Chat]:
    """The streamed answer, joined, and the whole one."""
    streamed = await client.events("/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    return join_chat(streamed), chat(await client.post("/v1/chat/completions", body))


def near(value: Any) -> Any:
    """Compares like the value, floats within the tolerance: the two answers were computed in different company."""
    match value:
        case float():
            return pytest.approx(value, abs=TOLERANCE)
        case list():
            return [near(item) for item in value]
        case dict():
            return {key: near(item) for key, item in value.items()}
    return value


def comparable(answer: Completion | Chat) -> Any:
    """The answer without its id and time, and without how much of the prompt the engine still had from the other."""
    assert answer.usage is not None
    usage = msgspec.structs.replace(answer.usage, prompt_tokens_details=None)
    return msgspec.to_builtins(msgspec.structs.replace(answer, id="", created=0, usage=usage))


def check_same(streamed: Completion | Chat, whole: Completion | Chat) -> None:
    assert comparable(streamed) == near(comparable(whole))


async def test_law_2_streamed_completions_are_the_whole_answer(served: ServeProcess) -> None:
    async with served.client() as client:
        pairs = await asyncio.gather(*(both_completions(client, GREEDY | wishes) for wishes in COMPLETIONS))
    for wishes, (streamed, whole) in zip(COMPLETIONS, pairs, strict=True):
        check_same(streamed, whole)
        assert whole.choice.finish_reason == ("stop" if {"stop", "stop_token_ids"} & wishes.keys() else "length")
        assert whole.usage is not None
        assert whole.choice.token_ids is not None
        assert whole.usage.completion_tokens == len(whole.choice.token_ids)


async def test_law_2_streamed_chats_are_the_whole_answer(served: ServeProcess) -> None:
    messages = [{"role": "user", "content": "What is 2+2?"}]
    async with served.client() as client:
        pairs = await asyncio.gather(
            *(both_chats(client, GREEDY | {"messages": messages} | wishes) for wishes in CHATS)
        )
    for streamed, whole in pairs:
        check_same(streamed, whole)
        assert whole.choice.finish_reason == "stop"


async def test_law_4_offsets_cut_the_text_into_its_tokens(served: ServeProcess, reference: ReferenceModel) -> None:
    async with served.client() as client:
        emoji, kanji, stopped, shown = [
            completion(await client.post("/v1/completions", GREEDY | wishes)).choice for wishes in COMPLETIONS[:4]
        ]
    for choice, count in ((emoji, COUNT), (kanji, 10)):
        assert choice.token_ids is not None
        assert len(choice.token_ids) == count
        check_offsets(reference, choice)
        assert choice.text == reference.text(choice.token_ids)
    assert any(token.startswith("bytes:") for token in logprobs_of(emoji).tokens), "no token is part of a character"
    assert kanji.text.endswith("\ufffd"), "the cut is not within a character"
    check_offsets(reference, stopped)
    assert (stopped.text, stopped.stop_reason) == ("🐈 ", "🎉")
    check_offsets(reference, shown)
    assert (shown.text, shown.stop_reason) == ("🐈 🎉🐈", "🐈 🎉🐈")


def logprobs_of(choice: CompletionChoice) -> LegacyLogprobs:
    assert choice.logprobs is not None
    return choice.logprobs


def check_offsets(reference: ReferenceModel, choice: CompletionChoice) -> None:
    """Offsets never decrease, and what lies between two of them is what the tokens up to there add to the text."""
    offsets, ids = logprobs_of(choice).text_offset, choice.token_ids
    assert ids is not None
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    uncut = reference.text(ids)
    assert uncut.startswith(choice.text)
    for place, offset in enumerate(offsets):
        told = reference.text(ids[:place])
        settled = told.rstrip("\ufffd")
        assert offset == len(settled), f"token {place}"
        assert uncut.startswith(settled)


async def test_law_4_the_bytes_of_the_tokens_are_the_text(served: ServeProcess) -> None:
    messages = [{"role": "user", "content": "Say: 🐈🐈🐈🐈"}]
    body = {"messages": messages, "logprobs": True, "skip_special_tokens": False, **GREEDY}
    async with served.client() as client:
        answer = chat(await client.post("/v1/chat/completions", body)).choice
    assert answer.logprobs is not None
    assert answer.token_ids is not None
    assert len(answer.logprobs.content) == len(answer.token_ids)
    assert answer.text == joined_bytes(answer.logprobs).decode(errors="replace")
    assert "🐈" in answer.text


def joined_bytes(logprobs: ChatLogprobs) -> bytes:
    return b"".join(bytes(entry.bytes or []) for entry in logprobs.content)
