from typing import Any

import pytest
from hypothesis import given

from engines.errors import EngineDied
from engines.protocol import Finish, FinishKind
from processors.dialects.openai import OpenAIOptions
from processors.dialects.openai_chat import ChatRenderer
from tests.processors.answers import Answer, Token
from tests.processors.dialects.joining import best, foreign_members, join_chats, ranked_prompt, shown
from tests.processors.dialects.scenes import (
    HEAD,
    Scene,
    body_of,
    check_continuous_usage,
    check_one_finish,
    check_usage,
    chunks_of,
    plain_prompt,
    scenes,
)
from tests.processors.dialects.vocabularies import VOCABULARY
from tests.sse import EventReader

SCENES = scenes(max_prompts=1)
FOREIGN = {"output_logprobs", "cumulative_logprob", "meta_info"}


def renderer(scene: Scene) -> ChatRenderer:
    return ChatRenderer(HEAD, VOCABULARY, scene.options, scene.views[0], role="assistant")


def simple(options: OpenAIOptions, finish: Finish) -> Scene:
    answer = Answer(tokens=[Token(id=1, text="Hi"), Token(id=2, text="!")], logprobs=False, finish=finish)
    runs: Any = [[[token] for token in answer.tokens]]
    return Scene(options=options, prompts=[plain_prompt("p", 1, 2)], answers=[answer], runs=runs, order=[0, 0])


@given(SCENES)
def test_law_2_the_stream_joined_is_the_whole_answer(scene: Scene) -> None:
    body = body_of(renderer(scene), scene)
    chunks = check_usage(scene, chunks_of(renderer(scene), scene), body)
    choices = len(scene.answers)
    check_one_finish(chunks, choices)
    if scene.options.continuous_usage:
        check_continuous_usage(scene, chunks[choices:])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert body["object"] == "chat.completion"
    joined = join_chats(chunks)
    assert [joined[index] for index in range(choices)] == body["choices"]
    assert [chunk.get("prompt_token_ids") for chunk in chunks[:1]] == [body.get("prompt_token_ids")]
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])
    pieces = [entry for chunk in chunks for entry in chunk.get("prompt_logprobs", [])]
    assert pieces == body.get("prompt_logprobs", [])


@given(SCENES)
def test_each_choice_opens_with_its_role_and_names_it_once(scene: Scene) -> None:
    chunks = chunks_of(renderer(scene), scene)
    choices = len(scene.answers)
    assert [chunk["choices"][0]["index"] for chunk in chunks[:choices]] == list(range(choices))
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:choices]] == [
        {"role": "assistant", "content": ""}
    ] * choices
    assert not any("role" in choice["delta"] for chunk in chunks[choices:] for choice in chunk["choices"])


@given(SCENES)
def test_law_3_a_choice_has_as_many_ids_as_entries_as_tokens(scene: Scene) -> None:
    for choice, answer in zip(body_of(renderer(scene), scene)["choices"], scene.answers, strict=True):
        assert (choice["logprobs"] is not None) == (scene.options.logprobs is not None)
        if choice["logprobs"] is not None:
            widths = [len(scene.options.chosen or best(token, scene.options.logprobs or 0)) for token in answer.tokens]
            assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == widths
        if scene.options.return_token_ids:
            assert choice["token_ids"] == [token.id for token in answer.tokens]


@given(SCENES)
def test_law_5_each_block_shows_exactly_what_was_asked_of_it(scene: Scene) -> None:
    """Whatever else the answer holds, and so whatever more the engine sent; chosen ids come most likely first."""
    options = scene.options
    body = body_of(renderer(scene), scene)
    prompt = scene.prompts[0].tokens
    for choice, answer in zip(body["choices"], scene.answers, strict=True):
        expected = foreign_members(options, prompt if scene.scored else [], answer.tokens)
        assert {name: choice[name] for name in FOREIGN & choice.keys()} == expected
        for token, entry in zip(answer.tokens, (choice["logprobs"] or {"content": []})["content"], strict=False):
            tops = best(token, options.logprobs or 0)
            if options.chosen:
                pairs = zip(options.chosen, token.chosen, strict=True)
                tops = sorted(((token_id, value) for token_id, (value, _) in pairs), key=lambda pair: -pair[1])
            assert entry["logprob"] == shown(token.value)
            assert [(top["bytes"], top["logprob"]) for top in entry["top_logprobs"]] == [
                (list(VOCABULARY.bytes_of[token_id]), shown(value)) for token_id, value in tops
            ]
    known = None if options.prompt_logprobs is None else ranked_prompt(prompt, options.prompt_logprobs)
    assert body.get("prompt_logprobs") == known


def test_the_finish_rides_on_the_chunk_of_the_last_token() -> None:
    scene = simple(OpenAIOptions(), Finish(FinishKind.STOP, matched=2))
    choices = [chunk["choices"][0] for chunk in chunks_of(renderer(scene), scene)]
    assert choices == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "Hi"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "!"}, "logprobs": None, "finish_reason": "stop", "stop_reason": 2},
    ]


@pytest.mark.parametrize(
    ("finish", "reason", "stop_reason"),
    [
        (Finish(FinishKind.STOP), "stop", None),
        (Finish(FinishKind.STOP, matched=0), "stop", 0),
        (Finish(FinishKind.STOP, matched="</s"), "stop", "</s"),
        (Finish(FinishKind.LENGTH), "length", None),
    ],
)
def test_finish_and_stop_reason(finish: Finish, reason: str, stop_reason: str | int | None) -> None:
    scene = simple(OpenAIOptions(), finish)
    (choice,) = body_of(renderer(scene), scene)["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == (reason, stop_reason)


def test_the_whole_body() -> None:
    scene = simple(OpenAIOptions(return_token_ids=True), Finish(FinishKind.LENGTH))
    assert body_of(renderer(scene), scene) == {
        "id": HEAD.id,
        "object": "chat.completion",
        "created": HEAD.created,
        "model": HEAD.model,
        "system_fingerprint": HEAD.fingerprint,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi!", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
                "token_ids": [1, 2],
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "prompt_token_ids": [1, 2],
    }


def test_an_echo_leads_every_answer_streamed_and_whole() -> None:
    scene = simple(OpenAIOptions(), Finish(FinishKind.LENGTH))
    echoing = [ChatRenderer(HEAD, VOCABULARY, scene.options, scene.views[0], role="a", echo="So\u2028 ") for _ in "12"]
    chunks = chunks_of(echoing[0], scene)
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["So\u2028 ", "Hi", "!"]
    assert join_chats(chunks)[0] == body_of(echoing[1], scene)["choices"][0]
    assert join_chats(chunks)[0]["message"]["content"] == "So\u2028 Hi!"


def test_law_7_an_error_is_an_event_and_then_the_end_mark() -> None:
    scene = simple(OpenAIOptions(include_usage=True), Finish(FinishKind.STOP))
    rendering = renderer(scene)
    reader = EventReader()
    events = list(reader.feed(rendering.start() + rendering.error(EngineDied("gone\u0085"))))
    reader.close()
    assert events[1].json["error"]["code"] == "engine_died"
    assert events[1].json["error"]["message"] == "gone\u0085"
    assert [event.done for event in events] == [False, False, True]
