from pathlib import Path

import msgspec
import pytest

from engines.errors import EngineUnavailable, Overloaded
from engines.protocol import BatchTokenOut, EngineState, Finish, FinishKind, Frame, LogprobParams, SamplingParams
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import SCRIPTED_CAPABILITIES, ScriptedOptions
from engines.scripted.script import Script
from tests.engines.recorder import FrameRecorder
from tests.engines.scripted.stepped import OPTIONS, SteppedEngine

ENDLESS = Script(token_ids=[1, 2, 3], cycle=True)


async def test_nothing_happens_before_a_step() -> None:
    stepped = await SteppedEngine.start([ENDLESS])
    stepped.submit("a")
    assert stepped.recorder.frames == []
    frames = stepped.engine.step()
    assert stepped.recorder.frames == frames
    assert stepped.answer("a").token_ids == [1]


async def test_a_step_is_one_frame_of_all_requests() -> None:
    stepped = await SteppedEngine.start([ENDLESS, Script(token_ids=[7, 8, 9], grouping=[2])])
    stepped.submit("a", prompt=3)
    stepped.submit("b", prompt=5)
    frame, *others = stepped.engine.step()
    assert others == []
    assert isinstance(frame, BatchTokenOut)
    assert frame.request_ids == ["a", "b"]
    assert frame.token_counts == [1, 2]
    assert frame.token_ids == [1, 7, 8]
    assert frame.completion_tokens == [1, 2]
    assert frame.prompt_tokens == [3, 5]
    assert frame.finishes == [None, None]
    assert (frame.step, frame.running, frame.waiting) == (1, 2, 0)
    assert frame.logprobs is None
    frame, *_ = stepped.engine.step()
    assert frame.finishes == [None, Finish(FinishKind.STOP)]
    assert (frame.step, frame.running) == (2, 1)


async def test_idle_engine_sends_no_frame() -> None:
    stepped = await SteppedEngine.start([])
    assert stepped.engine.step() == []
    assert stepped.recorder.frames == []


async def test_default_output_is_cycled_to_max_tokens_past_ends_of_sequence() -> None:
    options = msgspec.structs.replace(OPTIONS, text_ids=[10, 2, 11, 12], eos_token_ids=(2,))
    stepped = await SteppedEngine.start(options=options)
    stepped.submit("a", 7)
    stepped.run()
    assert stepped.answer("a").token_ids == [10, 11, 12, 10, 11, 12, 10]
    assert stepped.answer("a").finish == Finish(FinishKind.LENGTH)


@pytest.mark.parametrize("vocab_size", [2, 50, 150_000])
async def test_default_output_without_a_text_is_of_the_vocabulary(vocab_size: int) -> None:
    options = msgspec.structs.replace(OPTIONS, vocab_size=vocab_size, eos_token_ids=(1,))
    stepped = await SteppedEngine.start(options=options)
    stepped.submit("a", 200)
    stepped.run()
    token_ids = stepped.answer("a").token_ids
    assert len(token_ids) == 200
    assert 1 not in token_ids
    assert 0 <= min(token_ids) <= max(token_ids) < vocab_size


async def test_scripts_from_a_file_are_received_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_bytes(msgspec.json.encode([Script(token_ids=[1]), Script(token_ids=[2])]))
    stepped = await SteppedEngine.start(options=msgspec.structs.replace(OPTIONS, script_file=str(path)))
    for request_id in "abc":
        stepped.submit(request_id)
    stepped.run()
    assert [stepped.answer(request_id).token_ids for request_id in "abc"] == [[1], [2], [1]]


async def test_requests_beyond_the_slots_wait_by_priority_and_arrival() -> None:
    options = msgspec.structs.replace(OPTIONS, max_running=1)
    stepped = await SteppedEngine.start([ENDLESS] * 4, options)
    for request_id, priority in (("first", 9), ("late", 5), ("later", 5), ("urgent", -1)):
        stepped.submit(request_id, 1, priority=priority)
    assert (stepped.engine.running, stepped.engine.waiting) == (1, 3)
    assert stepped.engine.live == ["first", "late", "later", "urgent"]
    stepped.run()
    assert [frame.request_ids for frame in stepped.recorder.frames] == [["first"], ["urgent"], ["late"], ["later"]]
    assert [frame.waiting for frame in stepped.recorder.frames] == [2, 1, 0, 0]
    assert stepped.engine.live == []


async def test_request_over_the_queue_limit_gets_an_error_row() -> None:
    options = msgspec.structs.replace(OPTIONS, max_running=1, queue_limit=1)
    stepped = await SteppedEngine.start([ENDLESS] * 4, options)
    for request_id in ("running", "waiting", "refused", "aborted"):
        stepped.submit(request_id)
    stepped.engine.abort(["aborted"])
    stepped.step()
    finish = stepped.answer("refused").finish
    assert finish is not None
    assert (finish.kind, finish.code) == (FinishKind.ERROR, Overloaded.code)
    assert stepped.answer("aborted").finish is None
    assert stepped.engine.live == ["running", "waiting"]
    stepped.step()
    assert len(stepped.recorder.rows["refused"]) == 1


async def test_aborts_take_effect_at_once_and_are_kept_in_order() -> None:
    options = msgspec.structs.replace(OPTIONS, max_running=2)
    stepped = await SteppedEngine.start([ENDLESS] * 4, options)
    for request_id in "abcd":
        stepped.submit(request_id)
    stepped.step()
    stepped.engine.abort(["b", "d", "unknown"])
    stepped.engine.abort(["b"])
    assert stepped.engine.aborted == ["b", "d", "unknown", "b"]
    assert stepped.engine.live == ["a", "c"]
    stepped.step()
    assert stepped.recorder.frames[-1].request_ids == ["a", "c"]
    assert [request.id for request in stepped.engine.submitted] == ["a", "b", "c", "d"]


async def test_id_of_a_live_request_is_refused() -> None:
    stepped = await SteppedEngine.start([ENDLESS] * 3)
    stepped.submit("a")
    with pytest.raises(ValueError, match="already"):
        stepped.submit("a")
    stepped.engine.abort(["a"])
    stepped.submit("a")


async def test_held_engine_and_held_requests_send_nothing() -> None:
    stepped = await SteppedEngine.start([ENDLESS] * 2)
    stepped.submit("a")
    stepped.submit("b")
    stepped.engine.hold()
    assert stepped.engine.step() == []
    stepped.engine.release()
    stepped.engine.hold("a")
    stepped.step()
    assert stepped.recorder.frames[-1].request_ids == ["b"]
    stepped.engine.release("a")
    stepped.step()
    assert stepped.recorder.frames[-1].request_ids == ["a", "b"]
    assert stepped.answer("a").token_ids == [1]
    with pytest.raises(KeyError):
        stepped.engine.hold("unknown")


async def test_killed_engine_loses_its_requests_until_it_is_revived() -> None:
    stepped = await SteppedEngine.start([ENDLESS] * 2)
    stepped.submit("a")
    stepped.engine.kill("pulled the plug")
    assert stepped.recorder.downs == [("scripted", "pulled the plug")]
    assert stepped.engine.state is EngineState.DOWN
    assert stepped.engine.live == []
    assert stepped.engine.step() == []
    with pytest.raises(EngineUnavailable):
        stepped.submit("b")
    stepped.engine.revive()
    assert stepped.recorder.ups == [stepped.engine.info] * 2
    stepped.submit("b", 1)
    stepped.step()
    assert stepped.answer("b").token_ids == [1]
    assert stepped.answer("a").token_ids == []


async def test_made_up_frames_are_delivered() -> None:
    stepped = await SteppedEngine.start([ENDLESS])
    stepped.submit("a")
    (frame,) = stepped.engine.step()
    stepped.engine.deliver(frame)
    assert stepped.recorder.frames == [frame, frame]


def test_capabilities_name_every_sampling_field_and_can_be_others() -> None:
    assert SCRIPTED_CAPABILITIES.sampling == set(SamplingParams.__struct_fields__)
    poor = msgspec.structs.replace(SCRIPTED_CAPABILITIES, token_logprobs=False)
    assert ScriptedOptions(capabilities=poor).capabilities == poor


async def test_info_says_what_the_options_say() -> None:
    poor = msgspec.structs.replace(SCRIPTED_CAPABILITIES, priority=False)
    options = msgspec.structs.replace(OPTIONS, model="m", weight_version="7", eos_token_ids=(4,), capabilities=poor)
    stepped = await SteppedEngine.start(options=options)
    info = stepped.engine.info
    assert (info.engine_id, info.model, info.tokenizer) == ("scripted", "m", "none")
    assert (info.vocab_size, info.max_model_len, info.eos_token_ids) == (500, 5000, (4,))
    assert (info.capabilities, info.weight_version) == (poor, "7")
    stepped.submit("a")
    assert stepped.engine.step()[0].weight_version == "7"


async def test_listener_may_abort_and_submit_while_it_hears_a_frame() -> None:
    stepped = await SteppedEngine.start([ENDLESS] * 3)

    class Replacing(FrameRecorder):
        def on_frame(self, frame: Frame) -> None:
            super().on_frame(frame)
            if frame.step == 1:
                stepped.engine.abort(["a"])
                stepped.submit("c", 1)

    stepped.recorder = Replacing()
    await stepped.engine.start(stepped.recorder)
    stepped.submit("a")
    stepped.submit("b")
    stepped.step(2)
    assert [frame.request_ids for frame in stepped.recorder.frames] == [["a", "b"], ["b", "c"]]


async def test_logprobs_of_many_different_scripts_stay_their_own() -> None:
    scripts = [Script(token_ids=[number]) for number in range(200)]
    stepped = await SteppedEngine.start(scripts)
    for number in range(200):
        stepped.submit(str(number), 1, LogprobParams(top_k=2))
    stepped.step()
    for number in range(200):
        answer = stepped.answer(str(number))
        rank = answer.ranks[0]
        assert rank > 2 or answer.top[0][rank - 1] == (number, answer.values[0])


def test_engine_can_be_made_without_a_loop() -> None:
    assert ScriptedEngine(OPTIONS).state is EngineState.STARTING
