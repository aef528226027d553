"""Cases of prompts that are scored, and of answers with several choices: laws 2 to 5 and 12."""

import asyncio
from typing import Any

from engines.scripted.script import Script
from tests.cases.answers import WITH_USAGE
from tests.cases.loading import Case
from tests.cases.logprobs import check_offsets, logprobs_of
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.serving import LiveServer
from tests.wire import Completion, completion, join_completion


@covers("LP-01")
async def offsets_after_an_echo(case: Case, stage: Stage) -> None:
    body: dict[str, Any] = case.request.json | {"stream": False}
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids(" four 🙂 five six seven eight")))
        for choice in (await both_ways(live, body)).choices:
            assert choice.text.startswith("One two three four")
            check_offsets(choice)
            # The first generated token stands right behind the prompt.
            prompt_tokens = len(stage.ids("One two three"))
            assert logprobs_of(choice).text_offset[prompt_tokens] == len("One two three")


@covers("LP-14")
async def prompts_are_scored(case: Case, stage: Stage) -> None:
    """As lm-evaluation-harness asks: ids, batches, texts, with and without a generated token."""
    body: dict[str, Any] = case.request.json
    text = "The capital of France"
    async with stage.serve() as live:
        stage.say(Script(token_ids=[stage.eos]))
        for prompts in (body["prompt"], [[7], [1, 2, 3]], text, [text, "x"]):
            for max_tokens in (1, 0):
                answer = await both_ways(live, body | {"prompt": prompts, "max_tokens": max_tokens})
                for choice, prompt in zip(answer.choices, batch_of(prompts), strict=True):
                    token_ids = stage.ids(prompt) if isinstance(prompt, str) else prompt
                    entries = logprobs_of(choice)
                    assert len(entries.tokens) == len(token_ids) + max_tokens
                    assert entries.token_logprobs[0] is None
                    assert all(isinstance(value, float) for value in entries.token_logprobs[1:])
                    assert entries.top_logprobs is not None
                    assert entries.top_logprobs[0] is None
                    # The dict holds the token that stands there, by the very value of the list.
                    for value, top in zip(entries.token_logprobs[1:], entries.top_logprobs[1:], strict=True):
                        assert top
                        assert value in top.values()
                    assert choice.finish_reason == ("stop" if max_tokens else "length")


def batch_of(prompts: Any) -> list[Any]:
    """The single prompts."""
    return prompts if isinstance(prompts, list) and not isinstance(prompts[0], int) else [prompts]


async def both_ways(live: LiveServer, body: dict[str, Any]) -> Completion:
    """The whole answer, which the joined stream must equal."""
    whole = completion(await live.client.post("/v1/completions", body))
    joined = join_completion(await live.client.events("/v1/completions", body | WITH_USAGE))
    assert joined.choices == whole.choices
    assert joined.usage == whole.usage
    return whole


@covers("LP-15")
async def scoring_is_bounded(case: Case, stage: Stage) -> None:
    body: dict[str, Any] = case.request.json
    async with stage.serve(max_logprob_entries=60_000, max_scoring_requests=2, stepped=True) as live:
        for count in (100_000, -1):
            reply = await live.client.post("/v1/completions", body | {"logprobs": count})
            assert (reply.status, reply.error.param) == (400, "logprobs")
        heavy = await live.client.post("/v1/completions", body | {"logprobs": 20})
        assert (heavy.status, heavy.error.param) == (400, "logprobs")
        assert "60000" in heavy.error.message
        places = [asyncio.create_task(live.client.post("/v1/completions", body)) for _ in range(2)]
        await live.engine.until_submitted(2)
        third = await live.client.post("/v1/completions", body)
        assert (third.status, third.error.code) == (429, "rate_limit_exceeded")
        assert third.headers["retry-after"]
        while live.engine.live:
            stage.engine.step()
        for reply in await asyncio.gather(*places):
            logprobs = logprobs_of(completion(reply).choice)
            assert len(logprobs.tokens) == len(live.engine.submitted[0].prompt_token_ids) + 1
        # A place that was given back can be taken again.
        again = asyncio.create_task(live.client.post("/v1/completions", body))
        await live.engine.until_submitted(3)
        while live.engine.live:
            stage.engine.step()
        assert (await again).status == 200


@covers("PR-07")
async def usage_sums_up(case: Case, stage: Stage) -> None:
    """Each prompt counts once, each choice's tokens all, cached tokens once a prompt; whatever ends first."""
    body: dict[str, Any] = {key: case.request.json[key] for key in ("prompt", "n", "max_tokens")}
    prompts = body["prompt"]
    async with stage.serve() as live:
        for grouping in ([], [4], [1, 3]):
            stage.say(Script(token_ids=stage.ids(" a b c d"), grouping=grouping, cached_tokens=2))
            answer = await both_ways(live, body)
            assert answer.usage is not None
            assert [choice.index for choice in answer.choices] == list(range(6))
            assert answer.usage.prompt_tokens == sum(len(stage.ids(prompt)) for prompt in prompts)
            assert answer.usage.completion_tokens == 4 * len(prompts) * body["n"]
            assert answer.usage.prompt_tokens_details is not None
            assert answer.usage.prompt_tokens_details.cached_tokens == 2 * len(prompts)
