import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import LogprobParams, LogprobsMode
from processors.delta import Delta
from processors.dialects.openai import OpenAIOptions
from processors.dialects.openai_completions import CompletionsRenderer
from processors.dialects.renderer import PromptView
from processors.limits import WHOLE_VOCABULARY
from tests.processors.answers import Answer, Token, deltas_of
from tests.processors.dialects.scenes import HEAD
from tests.processors.dialects.vocabularies import VOCABULARY
from tests.sse import strict_json

PROMPTS = [PromptView("p", [1]), PromptView("q", [2, 3])]


def sample(name: str, *values: float, logprobs: bool = True) -> Delta:
    """A sample that says its name once per token."""
    tokens = [Token(id=place, text=name, value=value) for place, value in enumerate(values)]
    (delta,) = deltas_of(Answer(tokens=tokens, logprobs=logprobs), [tokens], [[]])
    return delta


def best_of(samples: list[Delta], options: OpenAIOptions) -> Any:
    prompts = PROMPTS[: len(samples) // options.samples]
    return strict_json(CompletionsRenderer(HEAD, VOCABULARY, options, prompts, echo=True).whole(samples))


def test_best_of_shows_the_highest_mean_logprobs_of_each_prompt_and_counts_all() -> None:
    """The mean, not the sum: a long answer loses nothing by its length."""
    samples = [
        *(sample("a", -1.0, -1.0), sample("b", -0.5, -0.6, -0.7, -0.8), sample("c", -0.9)),
        *(sample("d", -math.inf), sample("e", -3.0), sample("f", -3.0, -2.0)),
    ]
    body = best_of(samples, OpenAIOptions(samples=3, shown_samples=2))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in body["choices"]] == ["pbbbb", "pc", "qff", "qe"]
    assert [choice["logprobs"] for choice in body["choices"]] == [None] * 4
    assert body["usage"]["completion_tokens"] == 2 + 4 + 1 + 1 + 1 + 2
    assert body["usage"]["prompt_tokens"] == 2 * samples[0].prompt_tokens


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=6), st.integers(1, 6))
def test_no_hidden_sample_is_likelier_than_one_that_is_shown(values: list[float], count: int) -> None:
    samples = [sample(f"{place},", value) for place, value in enumerate(values)]
    shown = min(count, len(values))
    body = best_of(samples, OpenAIOptions(samples=len(values), shown_samples=shown))
    places = [int(choice["text"][1:-1]) for choice in body["choices"]]
    assert len(set(places)) == shown
    hidden = [value for place, value in enumerate(values) if place not in places]
    assert min(values[place] for place in places) >= max(hidden, default=-math.inf)
    if shown < len(values):
        assert [values[place] for place in places] == sorted((values[place] for place in places), reverse=True)


@pytest.mark.parametrize(
    ("options", "prompt", "top_k", "token_ids"),
    [
        (OpenAIOptions(logprobs=0), None, 0, ()),
        (OpenAIOptions(logprobs=3), 0, 3, ()),
        (OpenAIOptions(logprobs=3, prompt_logprobs=5), 0, 5, ()),
        (OpenAIOptions(logprobs=5, prompt_logprobs=3), 0, 5, ()),
        (OpenAIOptions(prompt_logprobs=2), 0, 2, ()),
        (OpenAIOptions(logprobs=WHOLE_VOCABULARY), None, WHOLE_VOCABULARY, ()),
        (OpenAIOptions(logprobs=5, prompt_logprobs=WHOLE_VOCABULARY), 0, WHOLE_VOCABULARY, ()),
        (OpenAIOptions(logprobs=5, chosen=(7, 8)), None, 0, (7, 8)),
        (OpenAIOptions(logprobs=5, prompt_logprobs=2, chosen=(7,)), 0, 2, (7,)),
    ],
)
def test_the_engine_is_asked_once_for_the_most_that_any_block_shows(
    options: OpenAIOptions, prompt: int | None, top_k: int, token_ids: tuple[int, ...]
) -> None:
    wishes = options.wishes(prompt_start=prompt, ranked=False)
    assert wishes == LogprobParams(top_k=top_k, token_ids=token_ids, prompt_start=prompt)


def test_logprobs_are_asked_for_where_something_needs_them() -> None:
    processed = OpenAIOptions(mode=LogprobsMode.PROCESSED)
    assert processed.wishes(prompt_start=None, ranked=False) is None
    assert processed.wishes(prompt_start=None, ranked=True) == LogprobParams(mode=LogprobsMode.PROCESSED)
