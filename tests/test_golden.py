"""Our answers to requests that a real vLLM server was asked: the scripted engine says what vLLM's model said.

With the marker `model` the embedded engine is asked instead, in float32 where the recordings are of bfloat16.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.client import Client
from tests.golden_answers import Comparison, Golden, block_of, load, missing_keys, read_answer
from tests.golden_player import CONTEXT, GoldenPlayer
from tests.serve_process import ServeProcess, serve_process
from tests.serving import serve

MODEL = "smollm2"
EXACT = 1e-12
ROUNDING = 0.2
"""How far bfloat16 was seen to move a logprob, by the batch that a prompt happened to be in."""
RELATIVE = 2**-5
"""The same for unlikely tokens: a bfloat16 keeps eight bits, so that the error of a logit grows with its size."""
ANSWERED = [name for name, golden in load().items() if golden.status == 200]
REFUSED = [name for name, golden in load().items() if golden.status != 200]
DRAWN = ["cmpl_n2_stream"]
"""Answers of vLLM's own random numbers."""


async def ask(client: Client, golden: Golden) -> tuple[Any, list[Any]]:
    """The same request to us: the whole answer, or the events."""
    if golden.streamed:
        return None, await client.events(golden.path, golden.request)
    reply = await client.post(golden.path, golden.request)
    assert reply.status == 200, reply
    return reply.json, []


async def compare(client: Client, golden: Golden, tolerance: float, relative: float = 0.0) -> None:
    """Ask and hold the answers against each other, by their values and by what members they have."""
    response, events = await ask(client, golden)
    comparison = Comparison(golden, tolerance, relative)
    comparison.answer(read_answer(golden.path, response, events))
    if response is not None:
        comparison.prompt(block_of(response))
        assert missing_keys(golden, response) == set()


@pytest.mark.model
@pytest.mark.parametrize("name", ANSWERED)
async def test_answers_have_the_recorded_form(name: str, small_model_dir: Path) -> None:
    player = GoldenPlayer(small_model_dir, MODEL)
    async with serve(Settings(served_model_name=MODEL), player.engine) as live:
        player.rehearse(load()[name])
        await compare(live.client, load()[name], EXACT)


@pytest.mark.model
@pytest.mark.parametrize("name", REFUSED)
async def test_refusals_have_the_recorded_status_and_field(name: str, small_model_dir: Path) -> None:
    golden = load()[name]
    async with serve(Settings(served_model_name=MODEL), GoldenPlayer(small_model_dir, MODEL).engine) as live:
        reply = await live.client.post(golden.path, golden.request)
        assert reply.status == golden.status
        Comparison(golden, EXACT).param(reply.error.param)
        assert live.engine.submitted == []


@pytest.fixture(scope="module")
def embedded(small_model_dir: Path) -> Iterator[ServeProcess]:
    """The embedded engine, started once."""
    arguments = ("--dtype", "float32", "--max-model-len", str(CONTEXT), "--served-model-name", MODEL)
    with serve_process(*arguments) as server:
        yield server


@pytest.fixture
async def embedded_client(embedded: ServeProcess) -> AsyncIterator[Client]:
    """A client of it."""
    async with embedded.client() as client:
        yield client


@pytest.mark.model
@pytest.mark.parametrize("name", [name for name in ANSWERED if name not in DRAWN])
async def test_the_embedded_engine_says_what_vllm_said(name: str, embedded_client: Client) -> None:
    await compare(embedded_client, load()[name], ROUNDING, RELATIVE)


def test_every_recording_is_compared() -> None:
    assert len(ANSWERED) == 26
    assert len(REFUSED) == 8
