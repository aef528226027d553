import asyncio
import logging

import msgspec
import pytest

from engines.protocol import EngineRequest, EngineState, Frame, SamplingParams
from engines.scripted.engine import ScriptedEngine
from engines.scripted.faults import Death, Stall
from engines.scripted.pacer import Pacer
from engines.scripted.script import Script
from tests.engines.recorder import GUARD, FrameRecorder
from tests.engines.scripted.stepped import OPTIONS

FLOOD = msgspec.structs.replace(OPTIONS, step_ms=0)


def request(request_id: str, max_tokens: int = 50) -> EngineRequest:
    return EngineRequest(id=request_id, prompt_token_ids=[1], sampling=SamplingParams(max_tokens=max_tokens))


async def test_pacer_steps_only_as_long_as_there_is_work() -> None:
    work = [True, True, False, True, False]
    called = asyncio.Event()
    calls = 0

    def step() -> bool:
        nonlocal calls
        calls += 1
        if calls in {3, 5}:
            called.set()
        return work[calls - 1]

    pacer = Pacer(step, 0)
    drive = asyncio.create_task(pacer.run())
    async with asyncio.timeout(GUARD):
        pacer.wake()
        await called.wait()
        assert calls == 3
        called.clear()
        pacer.wake()
        await called.wait()
    assert calls == 5
    drive.cancel()
    await asyncio.wait([drive])


async def test_pacer_keeps_its_distance() -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    done = asyncio.Event()

    def step() -> bool:
        times.append(loop.time())
        if len(times) == 5:
            done.set()
        return True

    pacer = Pacer(step, 0.01)
    drive = asyncio.create_task(pacer.run())
    pacer.wake()
    async with asyncio.timeout(GUARD):
        await done.wait()
    drive.cancel()
    await asyncio.wait([drive])
    assert times[-1] - times[0] > 0.035


async def test_flood_gives_the_loop_its_turn_between_frames() -> None:
    engine, recorder = ScriptedEngine(FLOOD), FrameRecorder()
    await engine.start(recorder)
    engine.submit(request("a"))
    turns = 0
    async with asyncio.timeout(GUARD):
        while recorder.finish_of("a") is None:
            frames = len(recorder.frames)
            await asyncio.sleep(0)
            assert len(recorder.frames) <= frames + 1
            turns += 1
    assert turns >= 50
    await engine.close()


async def test_stalled_flood_rests_until_it_is_released() -> None:
    script = Script(token_ids=[1, 2, 3], faults=[Stall(1)])
    engine, recorder = ScriptedEngine(FLOOD, script_for=lambda _: script), FrameRecorder()
    await engine.start(recorder)
    engine.submit(request("a"))
    await recorder.tokens("a", 1)
    await asyncio.sleep(0)
    assert recorder.answer("a").token_ids == [1]
    engine.release("a")
    await recorder.finish("a")
    assert recorder.answer("a").token_ids == [1, 2, 3]
    await engine.close()


async def test_engine_held_before_its_start_is_not_ready_until_released() -> None:
    engine, recorder = ScriptedEngine(FLOOD), FrameRecorder()
    engine.hold()
    start = asyncio.create_task(engine.start(recorder))
    await asyncio.wait([start], timeout=0.01)
    assert (engine.state, recorder.ups) == (EngineState.STARTING, [])
    engine.release()
    await start
    assert (engine.state, recorder.ups) == (EngineState.READY, [engine.info])
    await engine.close()


async def test_first_token_takes_its_time() -> None:
    engine = ScriptedEngine(msgspec.structs.replace(FLOOD, first_token_ms=20))
    recorder = FrameRecorder()
    await engine.start(recorder)
    begin = asyncio.get_running_loop().time()
    engine.submit(request("a", 1))
    await recorder.finish("a")
    assert asyncio.get_running_loop().time() - begin >= 0.02
    await engine.close()


async def test_dying_flood_can_be_revived() -> None:
    scripts = iter([Script(token_ids=[1, 2], faults=[Death(1)]), Script(token_ids=[3])])
    engine, recorder = ScriptedEngine(FLOOD, script_for=lambda _: next(scripts)), FrameRecorder()
    await engine.start(recorder)
    engine.submit(request("a"))
    await recorder.until(lambda: bool(recorder.downs))
    engine.revive()
    engine.submit(request("b"))
    await recorder.finish("b")
    assert recorder.answer("b").token_ids == [3]
    await engine.close()


async def test_listener_that_raises_takes_the_engine_down(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FrameRecorder):
        def on_frame(self, frame: Frame) -> None:
            raise KeyError(frame.request_ids[0])

    engine, recorder = ScriptedEngine(FLOOD), Broken()
    await engine.start(recorder)
    engine.submit(request("a"))
    with caplog.at_level(logging.ERROR):
        await recorder.until(lambda: bool(recorder.downs))
    assert recorder.downs == [("scripted", "KeyError: 'a'")]
    assert "broke" in caplog.text
    await engine.close()
