"""Law 12: a long prompt is scored within a bound of memory, in whatever shape its logprobs are asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client import Client
from tests.generate_wire import PATH, Generated, joined
from tests.serve_process import ServeProcess, serve_process
from tests.wire import Completion, join_completion

pytestmark = [pytest.mark.serve, pytest.mark.model]

COMPLETIONS = "/v1/completions"
POSITIONS = 100_000
BOUND = 200 * 2**20
PROMPT = [(place * 7919) % 30_000 + 5 for place in range(POSITIONS)]
ECHO: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1, "echo": True, "logprobs": 5}
RANKED: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": 5}
NATIVE: dict[str, Any] = {
    "input_ids": PROMPT,
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 5,
    "sampling_params": {"max_new_tokens": 1},
}


@pytest.fixture(scope="module")
def scripted(small_model_dir: Path) -> Iterator[ServeProcess]:
    with serve_process("--engine", "scripted", "--scripted-step-ms", "0", "--max-model-len", "131072") as server:
        yield server


async def whole_echo(client: Client) -> int:
    reply = await client.post(COMPLETIONS, ECHO)
    return entries_of(msgspec.json.decode(reply.body, type=Completion))


async def streamed_echo(client: Client) -> int:
    return entries_of(join_completion(await client.events(COMPLETIONS, ECHO)))


def entries_of(answer: Completion) -> int:
    assert answer.choice.logprobs is not None
    assert answer.choice.logprobs.token_logprobs[0] is None
    return len(answer.choice.logprobs.tokens) - 1


async def whole_ranked(client: Client) -> int:
    reply = await client.post(COMPLETIONS, RANKED)
    return len(reply.json["choices"][0]["prompt_logprobs"])


async def whole_native(client: Client) -> int:
    reply = await client.post(PATH, NATIVE)
    return inputs_of(msgspec.json.decode(reply.body, type=Generated))


async def incremental_native(client: Client) -> int:
    (answer,) = joined(await client.events(PATH, NATIVE | {"incremental": True}), 1)
    return inputs_of(answer)


def inputs_of(answer: Generated) -> int:
    answer.check()
    assert len(answer.meta_info.input_top_logprobs or []) == POSITIONS
    return len(answer.meta_info.input_token_logprobs or [])


@pytest.mark.parametrize("ask", [streamed_echo, incremental_native, whole_native, whole_echo, whole_ranked])
async def test_100_000_positions_take_less_than_200_mib(scripted: ServeProcess, ask: Any) -> None:
    async with scripted.client() as client:
        await client.post(COMPLETIONS, ECHO | {"prompt": PROMPT[:1000]})
        before = scripted.memory
        scripted.forget_peak()
        assert await ask(client) == POSITIONS
        assert scripted.peak_memory - before < BOUND
