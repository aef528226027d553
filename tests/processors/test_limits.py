"""Places for requests that score prompts: over the limit 429, and never one that is lost."""

import asyncio
from pathlib import Path

import pytest

from engines.errors import EngineFault, EngineUnavailable, RateLimited
from engines.protocol import LogprobParams
from engines.scripted.script import Script
from processors.limits import Limits
from processors.request import PreparedRequest
from tests.processors.gateway_scene import GatewayScene, started

ENDLESS = Script(token_ids=[ord("a")], cycle=True)
SCORED = LogprobParams(prompt_start=0)


async def scored(scene: GatewayScene, places: int = 1) -> list[PreparedRequest]:
    return [await scene.prepare(logprobs=SCORED) for _ in range(places)]


async def check_full(scene: GatewayScene) -> None:
    """One more is refused with the limit's name, takes nothing, and unscored ones go on."""
    submitted = len(scene.engine.submitted)
    with pytest.raises(RateLimited) as refused:
        async with scene.gateway.open(await scored(scene)):
            raise AssertionError("opened over the limit")
    assert "--max-scoring-requests" in refused.value.message
    assert refused.value.retry_after is not None
    assert len(scene.engine.submitted) == submitted
    async with scene.gateway.open([await scene.prepare(logprobs=LogprobParams(top_k=2))]):
        pass


async def test_law_12_requests_that_score_prompts_have_so_many_places(byte_level_dir: Path) -> None:
    """A request takes one, whatever its batch; it is given back when its context is left, ended or not."""
    limits = Limits(max_scoring_requests=2)
    async with started(byte_level_dir, ENDLESS, limits=limits) as scene:
        for _ in range(3):
            async with scene.gateway.open(await scored(scene, 5)), scene.gateway.open(await scored(scene)):
                await check_full(scene)
            async with scene.gateway.open(await scored(scene)):
                pass


@pytest.mark.parametrize("error", [RuntimeError("router broke"), EngineFault("x"), asyncio.CancelledError()])
async def test_law_8_a_scoring_place_is_given_back_after_an_error(byte_level_dir: Path, error: BaseException) -> None:
    async with started(byte_level_dir, ENDLESS, limits=Limits(max_scoring_requests=1)) as scene:
        for _ in range(2):
            with pytest.raises(type(error)):
                async with scene.gateway.open(await scored(scene)):
                    raise error
        async with scene.gateway.open(await scored(scene)):
            await check_full(scene)


async def test_law_8_a_scoring_place_is_given_back_where_the_engine_takes_nothing(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS, limits=Limits(max_scoring_requests=1)) as scene:
        requests = await scored(scene)
        scene.engine.kill("crash")
        for _ in range(2):
            with pytest.raises(EngineUnavailable):
                async with scene.gateway.open(requests):
                    raise AssertionError("opened on a dead engine")
        scene.engine.revive()
        async with scene.gateway.open(requests):
            await check_full(scene)


async def test_law_8_a_scoring_place_is_given_back_by_a_reader_that_is_cancelled(byte_level_dir: Path) -> None:
    async with started(byte_level_dir, ENDLESS, limits=Limits(max_scoring_requests=1)) as scene:
        requests = await scored(scene)
        entered = asyncio.Event()

        async def read() -> None:
            async with scene.gateway.open(requests) as [collector]:
                entered.set()
                await collector.whole()

        reader = asyncio.create_task(read())
        await entered.wait()
        await check_full(scene)
        reader.cancel()
        await asyncio.wait([reader])
        async with scene.gateway.open(await scored(scene)):
            pass
