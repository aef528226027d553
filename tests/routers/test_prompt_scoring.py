"""While a long prompt is scored, and its answer is written, other streams go on step by step."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.scripted.script import Script
from tests.cases.stage import Stage
from tests.client import Reply
from tests.generate_wire import PATH, Generated
from tests.wire import Completion

POSITIONS = 100_000
PIECE = 256
PROMPT = [place % 30_000 for place in range(POSITIONS)]
ECHO: tuple[str, dict[str, Any]] = (
    "/v1/completions",
    {"prompt": PROMPT, "max_tokens": 1, "echo": True, "logprobs": 5},
)
NATIVE: tuple[str, dict[str, Any]] = (
    PATH,
    {
        "input_ids": PROMPT,
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 5,
        "sampling_params": {"max_new_tokens": 1},
    },
)


def scored(reply: Reply) -> int:
    """Positions of the prompt that the answer has."""
    assert reply.status == 200
    if b'"meta_info"' in reply.body:
        answer = msgspec.json.decode(reply.body, type=Generated)
        return len(answer.meta_info.input_token_logprobs or [])
    logprobs = msgspec.json.decode(reply.body, type=Completion).choice.logprobs
    assert logprobs is not None
    return len(logprobs.tokens) - 1


@pytest.mark.parametrize("request_", [ECHO, NATIVE], ids=["completions", "generate"])
async def test_law_9_each_step_reaches_the_other_stream_before_the_next(
    small_model_dir: Path, tmp_path: Path, request_: tuple[str, dict[str, Any]]
) -> None:
    stage = Stage(small_model_dir, tmp_path, context=2**17)
    path, body = request_
    async with stage.serve(stepped=True) as live:
        stage.say(Script(token_ids=stage.ids("word "), cycle=True))
        brisk_body = {"prompt": "x", "max_tokens": 10_000}
        async with stage.open_stream(live, "/v1/completions", brisk_body) as brisk:
            await brisk.next()
            heavy = asyncio.create_task(live.another_client().post(path, body))
            await live.engine.until_submitted(2)
            steps = 0
            while len(live.engine.live) > 1:
                stage.engine.step()
                steps += 1
                (choice,) = (await brisk.next())["choices"]
                assert choice["text"]
            # One piece a step, the token with the last one.
            assert steps == -(-POSITIONS // PIECE)
            while not heavy.done():
                stage.engine.step()
                assert await brisk.next()
        assert scored(await heavy) == POSITIONS
