"""Answers that are sent whole: the loop stays free while a large one is rendered, leavers are noticed."""

import asyncio
import threading

import pytest

from engines.scripted.script import Script
from processors.delta import Delta
from processors.dialects.openai_completions import CompletionsRenderer
from routers.answer import off_loop_if, unless_disconnected
from tests.cases.stage import Stage


@pytest.mark.parametrize(("positions", "on_loop"), [(1000, True), (1001, False)])
async def test_a_large_answer_is_rendered_off_the_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, positions: int, on_loop: bool
) -> None:
    rendered: list[bool] = []
    whole = CompletionsRenderer.whole

    def noted(self: CompletionsRenderer, deltas: list[Delta]) -> bytes:
        rendered.append(threading.current_thread() is threading.main_thread())
        return whole(self, deltas)

    monkeypatch.setattr(CompletionsRenderer, "whole", noted)
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("word "), cycle=True))
        reply = await live.client.post("/v1/completions", {"prompt": "x", "max_tokens": positions, "logprobs": 1})
        assert reply.json["usage"]["completion_tokens"] == positions
    assert rendered == [on_loop]


async def test_work_off_the_loop_raises_here() -> None:
    def fail(argument: str) -> None:
        raise ZeroDivisionError(argument)

    for heavy in (True, False):
        with pytest.raises(ZeroDivisionError, match="it"):
            await off_loop_if(heavy, fail, "it")


async def test_a_client_that_leaves_cancels_the_work() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, str]:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    assert await unless_disconnected(receive, work()) is None
    assert cancelled.is_set()


async def test_the_error_of_the_work_is_raised_and_the_watcher_ends() -> None:
    before = asyncio.all_tasks()

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    async def work() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await unless_disconnected(receive, work())
    assert asyncio.all_tasks() == before
