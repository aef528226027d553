"""An answer of several choices rendered both ways: as a stream in any order and grouping, and whole."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from engines.protocol import LogprobParams, LogprobsMode, PromptLogprobs
from processors.delta import Delta
from processors.dialects.foreign_logprobs import LogprobFormat
from processors.dialects.openai import OpenAIOptions
from processors.dialects.renderer import AnswerHead, PromptView, Renderer
from processors.limits import WHOLE_VOCABULARY
from tests.processors.answers import Answer, Token, answers, deltas_of
from tests.processors.dialects.vocabularies import EMPTY, VOCABULARY
from tests.processors.strategies import cuts
from tests.sse import Event, EventReader, strict_json

HEAD = AnswerHead(id="cmpl-1", created=1796087787, model='m"\u2028', fingerprint="fp\u0085")
CHOSEN = st.sampled_from([(), (0xF0,), (7, EMPTY, 5)])


@st.composite
def all_options(draw: st.DrawFn) -> OpenAIOptions:
    """Any combination that the routes let through: ids are chosen only where there are logprobs."""
    logprobs = draw(st.sampled_from([None, 0, 1, 5, WHOLE_VOCABULARY]))
    return OpenAIOptions(
        include_usage=draw(st.booleans()),
        continuous_usage=draw(st.booleans()),
        return_token_ids=draw(st.booleans()),
        tokens_as_token_ids=draw(st.booleans()),
        logprobs=logprobs,
        prompt_logprobs=draw(st.sampled_from([None, 0, 2, WHOLE_VOCABULARY])),
        chosen=() if logprobs is None else draw(CHOSEN),
        logprob_format=draw(st.sampled_from(LogprobFormat)),
        mode=draw(st.sampled_from(LogprobsMode)),
        samples=(samples := draw(st.integers(1, 2))),
        shown_samples=samples,
    )


class ScenePrompt(msgspec.Struct, frozen=True):
    """A prompt as answers show it, and its tokens; the first one's logprobs are never told. It has ids, so many."""

    view: PromptView
    answer: Answer

    @property
    def tokens(self) -> list[Token]:
        """Its tokens, with what an engine says of each."""
        return self.answer.tokens

    def piece(self, start: int, tokens: Sequence[Token]) -> PromptLogprobs:
        """The logprobs of a run of positions, as engines send them."""
        valued = tokens[1:] if start == 0 else tokens
        unknown = len(tokens) - len(valued)
        values: list[float | None] = [None] * unknown
        return PromptLogprobs(
            start=start,
            token_ids=[token.id for token in tokens],
            values=[*values, *(token.value for token in valued)],
            ranks=[0] * unknown + [token.rank for token in valued],
            top_k=self.answer.top_k,
            top_ids=[token_id for token in valued for token_id, _ in token.alternatives],
            top_values=[value for token in valued for _, value in token.alternatives],
            chosen_values=[value for token in valued for value, _ in token.chosen],
            chosen_ranks=[rank for token in valued for _, rank in token.chosen],
        )

    def pieces(self, runs: Sequence[Sequence[Token]]) -> list[PromptLogprobs]:
        """One piece a run."""
        starts = [sum(map(len, runs[:number])) for number in range(len(runs))]
        return [self.piece(start, run) for start, run in zip(starts, runs, strict=True)]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Options, prompts, each choice's answer, and what its deltas hold: pieces of the prompt's logprobs and tokens."""

    options: OpenAIOptions
    prompts: list[ScenePrompt]
    answers: list[Answer]
    runs: list[list[list[Token | PromptLogprobs]]]
    order: list[int]
    echo: bool = False
    scored: bool = False

    @property
    def views(self) -> list[PromptView]:
        """The prompts as renderers take them."""
        return [prompt.view for prompt in self.prompts]

    def prompt_of(self, index: int) -> ScenePrompt:
        """The prompt of a choice."""
        return self.prompts[index // self.options.samples]

    def whole(self) -> list[Delta]:
        """Each choice in one delta, its prompt in one piece."""
        deltas = []
        for index, answer in enumerate(self.answers):
            prompt = self.prompt_of(index)
            pieces = prompt.pieces([prompt.tokens]) if self.scored else []
            deltas += deltas_of(answer, [answer.tokens], [pieces])
        return deltas

    def deltas(self) -> list[tuple[int, Delta]]:
        """All deltas with their choice, interleaved."""
        waiting = [
            deltas_of(
                answer,
                [[item for item in run if isinstance(item, Token)] for run in runs],
                [[item for item in run if isinstance(item, PromptLogprobs)] for run in runs],
            )
            for answer, runs in zip(self.answers, self.runs, strict=True)
        ]
        return [(index, waiting[index].pop(0)) for index in self.order]


@st.composite
def scenes(draw: st.DrawFn, *, max_prompts: int, echo: bool | None = False) -> Scene:
    """Any answer. The choices of one prompt agree on its tokens; logprobs are there exactly if they were asked for.

    Prompts come in pieces of any size, merged in any way with each other and with the first tokens.
    """
    options = draw(all_options())
    echoed = draw(st.booleans()) if echo is None else echo
    scored = options.prompt_logprobs is not None or (echoed and options.logprobs is not None)
    wishes = options.wishes(prompt_start=0 if scored else None, ranked=False)
    widths = wishes or LogprobParams()
    # Seven ids stand in for a vocabulary: more than any number that is asked for.
    top_k = 7 if widths.top_k == WHOLE_VOCABULARY else widths.top_k
    drawn = answers(vocabulary=VOCABULARY.size, max_size=4, top_k=top_k, chosen=len(widths.token_ids))
    prompts = [prompt_of(draw(drawn)) for _ in range(draw(st.integers(1, max_prompts)))]
    choices: list[Answer] = []
    runs: list[list[list[Token | PromptLogprobs]]] = []
    for prompt in prompts:
        for _ in range(options.samples):
            choices.append(
                msgspec.structs.replace(
                    draw(drawn), logprobs=wishes is not None, prompt_tokens=len(prompt.view.token_ids)
                )
            )
            pieces = prompt.pieces(draw(cuts(prompt.tokens, empty_runs=False))) if scored else []
            runs.append(draw(cuts([*pieces, *choices[-1].tokens])))
    order = draw(st.permutations([index for index, parts in enumerate(runs) for _ in parts]))
    return Scene(options=options, prompts=prompts, answers=choices, runs=runs, order=order, echo=echoed, scored=scored)


def prompt_of(answer: Answer) -> ScenePrompt:
    """A prompt of the same tokens as an answer."""
    texts = [token.text for token in answer.tokens]
    view = PromptView("".join(texts), [token.id for token in answer.tokens], [len(text) for text in texts])
    return ScenePrompt(view, answer)


def plain_prompt(text: str, *token_ids: int) -> ScenePrompt:
    """A prompt whose logprobs nobody asks for."""
    return ScenePrompt(PromptView(text, list(token_ids)), Answer(tokens=[]))


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
        assert chunk.get("logprobs_mode") == (scene.options.mode if scene.options.any_logprobs else None)
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
