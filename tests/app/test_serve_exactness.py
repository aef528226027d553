"""`tailrace serve` in float32 answers as transformers does, alone and in company, and company costs no steps."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.client import Client
from tests.reference_model import ReferenceModel
from tests.serve_process import ServeProcess, metric
from tests.wire import CompletionChoice, completion, join_completion

pytestmark = [pytest.mark.serve, pytest.mark.model]

PROMPTS = [
    "The capital of France is",
    "In 1969, the first",
    "def fibonacci(n):\n    ",
    "Water boils at 100",
    "1, 2, 3, 4,",
    "The three primary colours are",
    "🙂🙃🙂🙃🙂🙃🙂",
    "नमस्ते नमस्ते नम",
]
COUNT = 8
TOP = 20
CHOSEN = [5000, 0, 28, 260]
MEASURED = {
    "max_tokens": COUNT,
    "temperature": 0,
    "logprobs": TOP,
    "ignore_eos": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
}
DRAWN = {"max_tokens": 12, "temperature": 0.9, "top_p": 0.95, "ignore_eos": True, "return_token_ids": True}


async def ask(client: Client, prompt: str, wishes: dict[str, Any], *, stream: bool = False) -> CompletionChoice:
    body = {"prompt": prompt, **wishes}
    if stream:
        return join_completion(await client.events("/v1/completions", body)).choice
    return completion(await client.post("/v1/completions", body)).choice


def check(reference: ReferenceModel, prompt: str, choice: CompletionChoice) -> None:
    """Greedy ids, their logprobs and the 20 best at each place are those of the plain forward pass."""
    prompt_ids, ids = reference.ids(prompt), choice.token_ids
    assert ids is not None
    assert len(ids) == COUNT
    reference.check_greedy(prompt_ids, ids)
    assert choice.text == reference.text(ids)
    assert choice.logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.tokens == [f"token_id:{token_id}" for token_id in ids]
    tops = list(by_id(choice.logprobs.top_logprobs))
    assert [len(top) for top in tops] == [TOP] * COUNT
    assert all(list(top.values()) == sorted(top.values(), reverse=True) for top in tops)
    values = [value for value in choice.logprobs.token_logprobs if value is not None]
    reference.check(prompt_ids, ids, values, tops)


def by_id(tops: Sequence[dict[str, float] | None]) -> Iterator[dict[int, float]]:
    for top in tops:
        assert top is not None
        yield {int(name.removeprefix("token_id:")): value for name, value in top.items()}


async def test_tokens_and_logprobs_are_those_of_transformers_alone(
    served: ServeProcess, reference: ReferenceModel
) -> None:
    async with served.client() as client:
        choice = await ask(client, PROMPTS[0], MEASURED)
    assert choice.token_ids == reference.generate(reference.ids(PROMPTS[0]), COUNT)
    check(reference, PROMPTS[0], choice)


async def test_tokens_and_logprobs_are_those_of_transformers_among_8(
    served: ServeProcess, reference: ReferenceModel
) -> None:
    async with served.client() as client:
        choices = await asyncio.gather(
            *(ask(client, prompt, MEASURED, stream=place % 2 == 0) for place, prompt in enumerate(PROMPTS))
        )
    for prompt, choice in zip(PROMPTS, choices, strict=True):
        check(reference, prompt, choice)


async def test_logprobs_of_chosen_ids_are_those_of_transformers_among_8(
    served: ServeProcess, reference: ReferenceModel
) -> None:
    wishes = MEASURED | {"max_tokens": 4, "logprobs": 1, "logprob_token_ids": CHOSEN}
    async with served.client() as client:
        choices = await asyncio.gather(*(ask(client, prompt, wishes) for prompt in PROMPTS))
    for prompt, choice in zip(PROMPTS, choices, strict=True):
        assert choice.logprobs is not None
        assert choice.logprobs.top_logprobs is not None
        assert choice.token_ids is not None
        named = list(by_id(choice.logprobs.top_logprobs))
        assert [set(values) for values in named] == [{*CHOSEN, token_id} for token_id in choice.token_ids]
        reference.check_named(reference.ids(prompt), choice.token_ids, named)


async def test_a_seed_gives_the_same_ids_alone_and_among_others(served: ServeProcess) -> None:
    seeded = DRAWN | {"seed": 11}
    async with served.client() as client:
        alone = await ask(client, PROMPTS[1], seeded)
        others = [ask(client, prompt, DRAWN | {"max_tokens": 6 + place}) for place, prompt in enumerate(PROMPTS[2:])]
        unlike = ask(client, PROMPTS[1], DRAWN | {"seed": 12})
        among, other, *_ = await asyncio.gather(ask(client, PROMPTS[1], seeded), unlike, *others)
    assert among.token_ids == alone.token_ids
    assert other.token_ids != alone.token_ids


async def test_staggered_requests_share_their_steps(served: ServeProcess) -> None:
    """8 requests of 32 tokens, each begun when the one before has its first token, are 256 steps one by one."""
    wishes = {"max_tokens": 32, "temperature": 0, "ignore_eos": True}
    async with served.client() as client:
        before = await metric(client, "frames_total")
        running: list[asyncio.Task[None]] = []
        for prompt in PROMPTS:
            begun = asyncio.Event()
            running.append(asyncio.create_task(read_stream(client, {"prompt": prompt, **wishes}, begun)))
            await begun.wait()
        await asyncio.gather(*running)
        assert 32 + 7 <= await metric(client, "frames_total") - before <= 60


async def read_stream(client: Client, body: dict[str, Any], begun: asyncio.Event) -> None:
    async with client.stream("/v1/completions", body) as stream:
        await stream.next()
        begun.set()
        assert len(await stream.rest()) == 31
