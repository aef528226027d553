from typing import Any

import pytest
from hypothesis import given

from engines.errors import EngineDied
from engines.protocol import Finish, FinishKind
from processors.dialects.openai import OpenAIOptions
from processors.dialects.openai_completions import CompletionsRenderer
from processors.dialects.renderer import PromptView
from tests.processors.answers import Answer, Token, deltas_of
from tests.processors.dialects.joining import best, foreign_members, join_completions, ranked_prompt, shown
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

SCENES = scenes(max_prompts=2, echo=None)


def renderer(scene: Scene) -> CompletionsRenderer:
    return CompletionsRenderer(HEAD, VOCABULARY, scene.options, scene.views, echo=scene.echo)


def simple(text: str = "a", finish: Finish | None = None) -> Scene:
    answer = Answer(tokens=[Token(id=ord("a"), text=text)], logprobs=False, finish=finish or Finish(FinishKind.STOP))
    prompts = [plain_prompt("p", 1, 2)]
    return Scene(options=OpenAIOptions(), prompts=prompts, answers=[answer], runs=[[[*answer.tokens]]], order=[0])


def entries_of(scene: Scene, index: int) -> list[Token]:
    """The tokens that a choice's own logprobs are about."""
    return [*(scene.prompt_of(index).tokens if scene.echo else []), *scene.answers[index].tokens]


@given(SCENES)
def test_law_2_the_stream_joined_is_the_whole_answer(scene: Scene) -> None:
    body = body_of(renderer(scene), scene)
    chunks = check_usage(scene, chunks_of(renderer(scene), scene), body)
    check_one_finish(chunks, len(scene.answers))
    if scene.options.continuous_usage:
        check_continuous_usage(scene, chunks)
    assert {chunk["object"] for chunk in chunks} == {body["object"]} == {"text_completion"}
    joined = join_completions(chunks)
    assert [joined[index] for index in range(len(scene.answers))] == body["choices"]


@given(SCENES)
def test_law_3_a_choice_has_as_many_ids_as_entries_as_tokens(scene: Scene) -> None:
    """Under echo the prompt's entries come before."""
    for index, choice in enumerate(body_of(renderer(scene), scene)["choices"]):
        answer = scene.answers[index]
        assert (choice["logprobs"] is not None) == (scene.options.logprobs is not None)
        if choice["logprobs"] is not None:
            assert {len(column) for column in choice["logprobs"].values()} == {len(entries_of(scene, index))}
        if scene.options.return_token_ids:
            assert choice["token_ids"] == [token.id for token in answer.tokens]
            assert choice["prompt_token_ids"] == scene.prompt_of(index).view.token_ids


@given(SCENES)
def test_law_4_the_text_between_two_offsets_is_the_tokens_own(scene: Scene) -> None:
    """Under echo the prompt starts at 0."""
    for index, choice in enumerate(body_of(renderer(scene), scene)["choices"]):
        if choice["logprobs"] is not None:
            offsets = choice["logprobs"]["text_offset"]
            ends = [*offsets[1:], len(choice["text"])]
            texts = [choice["text"][start:end] for start, end in zip(offsets, ends, strict=True)]
            assert texts == [token.text for token in entries_of(scene, index)]


@given(SCENES)
def test_law_5_each_block_shows_exactly_what_was_asked_of_it(scene: Scene) -> None:
    """Whatever else the answer holds, and so whatever more the engine sent."""
    options = scene.options
    for index, choice in enumerate(body_of(renderer(scene), scene)["choices"]):
        prompt = scene.prompt_of(index).tokens
        if choice["logprobs"] is not None:
            check_legacy(options, choice["logprobs"], entries_of(scene, index), echo=scene.echo)
        expected = foreign_members(options, prompt if scene.scored else [], scene.answers[index].tokens)
        if options.prompt_logprobs is not None:
            expected["prompt_logprobs"] = ranked_prompt(prompt, options.prompt_logprobs)
        names = {"output_logprobs", "cumulative_logprob", "meta_info", "prompt_logprobs"}
        assert {name: choice[name] for name in names & choice.keys()} == expected


def check_legacy(options: OpenAIOptions, block: Any, tokens: list[Token], *, echo: bool) -> None:
    """The values, in order; the first token of an echoed prompt has none."""
    if echo:
        assert (block["token_logprobs"][0], block["top_logprobs"][0]) == (None, None)
    known = list(zip(tokens, block["token_logprobs"], block["top_logprobs"], strict=True))[1 if echo else 0 :]
    for token, value, tops in known:
        others = best(token, options.logprobs or 0)
        if options.chosen:
            others = [(token_id, value) for token_id, (value, _) in zip(options.chosen, token.chosen, strict=True)]
        values = [shown(token.value if token_id == token.id else value) for token_id, value in others]
        if token.id not in [token_id for token_id, _ in others]:
            values.append(shown(token.value))
        assert value == shown(token.value)
        assert list(tops.values()) == values


@given(SCENES)
def test_echo_gives_the_prompt_before_the_first_text_of_each_choice(scene: Scene) -> None:
    for index, choice in enumerate(body_of(renderer(scene), scene)["choices"]):
        prompt = scene.prompt_of(index).view.text if scene.echo else ""
        assert choice["text"] == prompt + "".join(token.text for token in scene.answers[index].tokens)


def test_the_shape_of_a_chunk() -> None:
    (chunk,) = chunks_of(renderer(simple()), simple())
    assert chunk == {
        "id": HEAD.id,
        "object": "text_completion",
        "created": HEAD.created,
        "model": HEAD.model,
        "system_fingerprint": HEAD.fingerprint,
        "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
    }


@pytest.mark.parametrize(
    ("finish", "reason", "stop_reason"),
    [
        (Finish(FinishKind.STOP), "stop", None),
        (Finish(FinishKind.STOP, matched=0), "stop", 0),
        (Finish(FinishKind.STOP, matched="\u2029é"), "stop", "\u2029é"),
        (Finish(FinishKind.LENGTH), "length", None),
    ],
)
def test_finish_and_stop_reason(finish: Finish, reason: str, stop_reason: str | int | None) -> None:
    (choice,) = body_of(renderer(simple(finish=finish)), simple(finish=finish))["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == (reason, stop_reason)


def test_usage_counts_each_prompt_once_in_whatever_order_the_choices_end() -> None:
    """PR-07."""
    answers = [Answer(tokens=[Token(id=1)], logprobs=False, prompt_tokens=p, cached_tokens=p - 1) for p in (4, 4, 7, 7)]
    options = OpenAIOptions(include_usage=True, samples=2, shown_samples=2)
    prompts = [plain_prompt("p", 1), plain_prompt("q", 2)]
    usages = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        runs: Any = [[answer.tokens] for answer in answers]
        scene = Scene(options=options, prompts=prompts, answers=answers, runs=runs, order=order)
        usages.append(chunks_of(renderer(scene), scene)[-1]["usage"])
    assert usages == [usages[0]] * 3
    assert (usages[0]["prompt_tokens"], usages[0]["completion_tokens"]) == (11, 4)
    assert usages[0]["prompt_tokens_details"] == {"cached_tokens": 9}


def test_law_7_an_error_is_an_event_and_then_the_end_mark() -> None:
    """After three chunks; no usage, and nothing like success."""
    rendering = CompletionsRenderer(HEAD, VOCABULARY, OpenAIOptions(include_usage=True), [PromptView("p", [1])])
    answer = Answer(tokens=[Token(id=1, text="x")] * 4, logprobs=False)
    deltas = deltas_of(answer, [[token] for token in answer.tokens])[:3]
    reader = EventReader()
    events = [event for delta in deltas for event in reader.feed(rendering.delta(0, delta))]
    error, done = reader.feed(rendering.error(EngineDied("the engine\u2028died")))
    reader.close()
    assert [event.json["choices"][0]["finish_reason"] for event in events] == [None] * 3
    assert error.json["error"] == {
        "message": "the engine\u2028died",
        "type": "server_error",
        "param": None,
        "code": "engine_died",
    }
    assert done.done
