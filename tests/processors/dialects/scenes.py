"""An answer of several choices rendered both ways: as a stream in any order and grouping, and whole."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from engines.protocol import LogprobsMode
from processors.delta import Delta
from processors.dialects.openai import OpenAIOptions
from processors.dialects.renderer import AnswerHead, PromptView, Renderer
from tests.processors.answers import Answer, answers, deltas_of
from tests.processors.dialects.vocabularies import VOCABULARY
from tests.processors.strategies import NASTY_TEXTS, cuts
from tests.sse import Event, EventReader, strict_json

HEAD = AnswerHead(id="cmpl-1", created=1796087787, model='m"\u2028', fingerprint="fp\u0085")
OPTIONS = st.builds(
    OpenAIOptions,
    include_usage=st.booleans(),
    continuous_usage=st.booleans(),
    return_token_ids=st.booleans(),
    tokens_as_token_ids=st.booleans(),
    logprobs_mode=st.none() | st.sampled_from(LogprobsMode),
    samples=st.integers(1, 2),
)
PROMPTS = st.builds(PromptView, NASTY_TEXTS, st.lists(st.integers(0, 9), max_size=3))


class Scene(msgspec.Struct, frozen=True):
    """Options, prompts, each choice's answer, and its tokens in the runs that its deltas hold."""

    options: OpenAIOptions
    prompts: list[PromptView]
    answers: list[Answer]
    runs: list[list[list[Any]]]
    order: list[int]

    def whole(self) -> list[Delta]:
        """Each choice in one delta."""
        return [deltas_of(answer, [answer.tokens])[0] for answer in self.answers]

    def deltas(self) -> list[tuple[int, Delta]]:
        """All deltas with their choice, interleaved."""
        waiting = [deltas_of(answer, runs) for answer, runs in zip(self.answers, self.runs, strict=True)]
        return [(index, waiting[index].pop(0)) for index in self.order]


@st.composite
def scenes(draw: st.DrawFn, *, max_prompts: int) -> Scene:
    """Any answer. The choices of one prompt agree on its tokens; logprobs are there exactly if they were asked for."""
    options = draw(OPTIONS)
    prompts = draw(st.lists(PROMPTS, min_size=1, max_size=max_prompts))
    drawn = answers(vocabulary=VOCABULARY.size, max_size=4, top_k=draw(st.sampled_from([0, 1, 5])))
    choices = []
    for prompt in prompts:
        for _ in range(options.samples):
            answer = draw(drawn)
            with_logprobs = options.logprobs_mode is not None
            choices.append(
                msgspec.structs.replace(answer, logprobs=with_logprobs, prompt_tokens=len(prompt.token_ids) + 1)
            )
    runs = [draw(cuts(answer.tokens)) for answer in choices]
    order = draw(st.permutations([index for index, parts in enumerate(runs) for _ in parts]))
    return Scene(options, prompts, choices, runs, order)


def stream(renderer: Renderer, scene: Scene) -> list[Event]:
    """The events of the whole stream, read as strictly as can be."""
    reader = EventReader()
    events = list(reader.feed(renderer.start()))
    for index, delta in scene.deltas():
        new = list(reader.feed(renderer.delta(index, delta)))
        assert len(new) == 1
        events += new
    events += reader.feed(renderer.end())
    reader.close()
    assert events.pop().done
    return events


def chunks_of(renderer: Renderer, scene: Scene) -> list[Any]:
    """The chunks before the end mark; each has the head, and the logprobs' mode exactly if logprobs were asked for."""
    chunks = [event.json for event in stream(renderer, scene)]
    for chunk in chunks:
        assert (chunk["id"], chunk["created"]) == (HEAD.id, HEAD.created)
        assert (chunk["model"], chunk["system_fingerprint"]) == (HEAD.model, HEAD.fingerprint)
        assert chunk.get("logprobs_mode") == scene.options.logprobs_mode
    return chunks


def body_of(renderer: Renderer, scene: Scene) -> Any:
    """The whole answer, read strictly."""
    body = renderer.whole(scene.whole())
    assert len(body.decode().splitlines()) == 1
    return strict_json(body)


def check_usage(scene: Scene, chunks: list[Any], body: Any) -> list[Any]:
    """Law 3 and the three forms of usage; returns the chunks that have choices."""
    per_prompt = scene.answers[:: scene.options.samples]
    prompt = sum(answer.prompt_tokens for answer in per_prompt)
    completion = sum(len(answer.tokens) for answer in scene.answers)
    expected = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(answer.cached_tokens for answer in per_prompt)},
    }
    assert body["usage"] == expected
    if not scene.options.include_usage:
        assert all(chunk["choices"] for chunk in chunks)
        if not scene.options.continuous_usage:
            assert not any("usage" in chunk for chunk in chunks)
        return chunks
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == expected
    assert all(chunk["choices"] for chunk in chunks[:-1])
    if not scene.options.continuous_usage:
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    return chunks[:-1]


def check_continuous_usage(scene: Scene, chunks: list[Any]) -> None:
    """Each delta's chunk counts its own choice so far."""
    for (index, delta), chunk in zip(scene.deltas(), chunks, strict=True):
        usage = chunk["usage"]
        answer = scene.answers[index]
        assert usage["completion_tokens"] == delta.completion_tokens
        assert usage["prompt_tokens"] == answer.prompt_tokens
        assert usage["total_tokens"] == answer.prompt_tokens + delta.completion_tokens


def check_one_finish(chunks: list[Any], choices: int) -> None:
    """Law 7: null, and the key present, on all but the last chunk of each choice."""
    for index in range(choices):
        reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert reasons[:-1] == [None] * (len(reasons) - 1)
        assert reasons[-1] in {"stop", "length"}
