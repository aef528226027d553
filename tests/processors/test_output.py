import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import (
    Aborted,
    ContextLengthExceeded,
    EngineDied,
    EngineFault,
    InternalFault,
    InvalidLogits,
    TailraceError,
)
from engines.protocol import Finish, FinishKind, LogprobParams
from processors.delta import Delta
from tests.processors.frames import FrameRow, embedding_frame, sampled_logprobs, text_frame, token_frame
from tests.processors.output_scene import OutputScene
from tests.processors.strategies import cuts

STOP = Finish(FinishKind.STOP)
LENGTH = Finish(FinishKind.LENGTH)


async def test_each_row_goes_to_its_request() -> None:
    scene = OutputScene()
    for name in "ab":
        scene.enter(name)
    scene.output.process(token_frame([FrameRow(id="b", ids=[*b"no"]), FrameRow(id="a", ids=[*b"yes"])]))
    assert [(await scene.take(name)).text for name in "ab"] == ["yes", "no"]
    assert len(scene.output) == 2


async def test_law_1_any_frames_of_the_same_tokens_are_the_same_answer() -> None:
    ids = [*"é🌟 STOP b".encode()]

    async def answer(runs: list[list[int]]) -> tuple[str, list[int], list[float], Finish | None]:
        scene = OutputScene()
        scene.enter("a", logprobs=LogprobParams(), stop=("STOP",))
        sent = 0
        for run in runs:
            sent += len(run)
            values = [-float(place) for place in range(sent - len(run), sent)]
            row = FrameRow(id="a", ids=run, total=sent, logprobs=sampled_logprobs(values) if run else None)
            scene.output.process(token_frame([row]))
        delta = await scene.take("a")
        assert delta.logprobs is not None
        return delta.text, delta.token_ids, delta.logprobs.values, delta.finish

    whole = await answer([ids])
    stop_end = len("é🌟 STOP".encode())
    assert whole == (
        "é🌟 ",
        ids[:stop_end],
        [-float(place) for place in range(stop_end)],
        Finish(FinishKind.STOP, "STOP"),
    )
    for cut in range(len(ids)):
        assert await answer([ids[:cut], ids[cut:]]) == whole
    assert await answer([[token_id] for token_id in ids]) == whole


async def test_rows_of_unknown_requests_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    scene = OutputScene()
    scene.enter("b")
    logprobs = sampled_logprobs([math.nan])
    with caplog.at_level("INFO", "tailrace.output"):
        for total in (1, 2, 3):
            rows = [FrameRow(id="x", ids=[1], logprobs=logprobs), FrameRow(id="b", ids=[ord("k")], total=total)]
            scene.output.process(token_frame(rows))
    assert (await scene.take("b")).text == "kkk"
    assert scene.meter.frames == [(2, 1, 2)] * 3
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    assert scene.aborts == []


async def fails(scene: OutputScene, name: str, kind: type[TailraceError]) -> TailraceError:
    with pytest.raises(TailraceError) as raised:
        await scene.take(name)
    assert type(raised.value) is kind
    return raised.value


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (FrameRow(id="a", ids=[1], logprobs=sampled_logprobs([math.nan])), InvalidLogits),
        (FrameRow(id="a", ids=[1], logprobs=sampled_logprobs([math.inf])), InvalidLogits),
        (FrameRow(id="a", ids=[1]), EngineFault),
        (FrameRow(id="a", ids=[1, 2], total=1, logprobs=sampled_logprobs([-1.0, -1.0])), EngineFault),
        (FrameRow(id="a", ids=[10**6], logprobs=sampled_logprobs([-1.0])), InternalFault),
    ],
    ids=["nan", "infinity", "no logprobs", "miscount", "no such id"],
)
async def test_law_9_a_fault_in_one_row_ends_its_own_request_alone(row: FrameRow, kind: type[TailraceError]) -> None:
    """The engine is told once; the rows around it arrive."""
    scene = OutputScene()
    scene.enter("a", logprobs=LogprobParams())
    for name in "bc":
        scene.enter(name)
    scene.output.process(token_frame([FrameRow(id="b", ids=[*b"b"]), row, FrameRow(id="c", ids=[*b"c"])]))
    error = await fails(scene, "a", kind)
    assert [(await scene.take(name)).text for name in "bc"] == ["b", "c"]
    assert scene.aborts == [["a"]]
    assert [(record.reason, record.code) for record in scene.meter.finished] == [("error", error.code)]
    scene.output.process(token_frame([FrameRow(id="a", ids=[1], total=2)]))
    assert scene.meter.frames[-1] == (1, 1, 1)
    assert scene.aborts == [["a"]]


async def test_a_fault_in_the_engines_last_row_needs_no_abort() -> None:
    scene = OutputScene()
    scene.enter("a", logprobs=LogprobParams())
    scene.output.process(token_frame([FrameRow(id="a", ids=[1], finish=STOP, logprobs=sampled_logprobs([math.nan]))]))
    await fails(scene, "a", InvalidLogits)
    assert scene.aborts == []


async def test_negative_infinity_passes() -> None:
    scene = OutputScene()
    scene.enter("a", logprobs=LogprobParams())
    scene.output.process(token_frame([FrameRow(id="a", ids=[1], logprobs=sampled_logprobs([-math.inf]))]))
    delta = await scene.take("a")
    assert delta.logprobs is not None
    assert delta.logprobs.values == [-math.inf]


async def test_a_frame_that_contradicts_itself_ends_its_requests_and_no_other() -> None:
    scene = OutputScene()
    for name in "abc":
        scene.enter(name)
    rows = [FrameRow(id="a", ids=[1, 2]), FrameRow(id="b", ids=[3])]
    scene.output.process(token_frame(rows, token_counts=[2, 2]))
    await fails(scene, "a", EngineFault)
    await fails(scene, "b", EngineFault)
    assert scene.aborts == [["a", "b"]]
    scene.output.process(token_frame([FrameRow(id="c", ids=[*b"c"])]))
    assert (await scene.take("c")).text == "c"


async def test_an_error_of_the_engine_is_the_requests_own_whatever_else_the_row_says() -> None:
    scene = OutputScene()
    scene.enter("a")
    scene.output.process(token_frame([FrameRow(id="a", ids=[*b"a"])]))
    finish = Finish(FinishKind.ERROR, code="context_length_exceeded", message="too long")
    scene.output.process(token_frame([FrameRow(id="a", finish=finish, total=0)]))
    assert (await scene.take("a")).text == "a"
    assert (await fails(scene, "a", ContextLengthExceeded)).message == "too long"
    assert scene.aborts == []
    assert scene.meter.finished[0].code == "context_length_exceeded"


async def test_an_unknown_error_code_is_an_engine_fault() -> None:
    scene = OutputScene()
    scene.enter("a")
    scene.output.process(token_frame([FrameRow(id="a", finish=Finish(FinishKind.ERROR, code="odd", message="m"))]))
    await fails(scene, "a", EngineFault)


async def test_a_stop_string_aborts_once_and_later_rows_are_dropped() -> None:
    scene = OutputScene()
    scene.enter("a", stop=("</s",))
    for ids, total in ([*b"x</"], 3), ([*b"s"], 4), ([*b"yz"], 6), ([*b"!"], 7):
        scene.output.process(token_frame([FrameRow(id="a", ids=ids, total=total)]))
    delta = await scene.take("a")
    assert (delta.text, delta.token_ids) == ("x", [*b"x</s"])
    assert delta.finish == Finish(FinishKind.STOP, matched="</s")
    assert scene.aborts == [["a"]]
    assert [unknown for _, unknown, _ in scene.meter.frames] == [0, 0, 1, 1]
    assert scene.meter.finished[0].completion_tokens == 4


async def test_a_stop_string_in_the_engines_last_row_needs_no_abort() -> None:
    scene = OutputScene()
    scene.enter("a", stop=("b",))
    scene.output.process(token_frame([FrameRow(id="a", ids=[*b"abc"], finish=LENGTH)]))
    assert (await scene.take("a")).finish == Finish(FinishKind.STOP, matched="b")
    assert scene.aborts == []


async def test_law_3_a_stop_in_a_speculative_row_cuts_every_column() -> None:
    """A step of 4 tokens with a stop at the 2nd: 2 tokens, 2 entries, completion_tokens 2."""
    scene = OutputScene()
    scene.enter("a", logprobs=LogprobParams(), stop=("b",))
    row = FrameRow(
        id="a",
        ids=[*b"abcd"],
        logprobs=sampled_logprobs([-1.0, -2.0, -3.0, -4.0]),
        hidden_states=[[1.0], [2.0], [3.0], [4.0]],
        multi_ids=[[1], [2], [3], [4]],
    )
    scene.output.process(token_frame([row], accepted_draft_tokens=[3], verify_steps=[1]))
    delta = await scene.take("a")
    assert delta.logprobs is not None
    assert delta.extras is not None
    assert (delta.text, delta.token_ids, delta.lengths, delta.completion_tokens) == ("a", [*b"ab"], [1, 1], 2)
    assert delta.logprobs.values == [-1.0, -2.0]
    assert delta.extras.hidden_states == [[1.0], [2.0]]
    assert delta.extras.multi_ids == [[1], [2]]
    assert row.hidden_states == [[1.0], [2.0], [3.0], [4.0]]


async def test_law_11_every_field_of_a_frame_reaches_the_delta() -> None:
    scene = OutputScene()
    scene.enter("a")
    scene.enter("b")
    row = FrameRow(
        id="b", ids=[ord("x")], cached=2, hidden_states=[[0.5]], multi_ids=[[7, 8]], extra_info={"seed": 4}, finish=STOP
    )
    frame = token_frame(
        [FrameRow(id="a"), row],
        accepted_draft_tokens=[0, 5],
        verify_steps=[0, 6],
        segments=[0, 2],
        weight_version="v2",
        running=3,
        waiting=4,
    )
    scene.output.process(frame)
    delta = await scene.take("b")
    assert delta.extras is not None
    assert (delta.extras.hidden_states, delta.extras.multi_ids) == ([[0.5]], [[7, 8]])
    assert (delta.extras.accepted_draft_tokens, delta.extras.verify_steps, delta.extras.segment) == (5, 6, 2)
    assert delta.extras.extra_info == {"seed": 4}
    assert (delta.prompt_tokens, delta.completion_tokens, delta.cached_tokens) == (3, 1, 2)
    assert (delta.weight_version, delta.finish) == ("v2", STOP)
    assert scene.meter.load == {"e": (3, 4)}
    other = (await scene.take("a")).extras
    assert other is not None
    assert (other.hidden_states, other.extra_info, other.verify_steps) == ([], None, 0)


async def test_text_of_the_engine_passes_our_stops() -> None:
    scene = OutputScene()
    scene.enter("a", stop=("lo w",))
    scene.output.process(text_frame([FrameRow(id="a", ids=[1, 2], text="hello")]))
    scene.output.process(text_frame([FrameRow(id="a", ids=[3], total=3, text=" world")]))
    delta = await scene.take("a")
    assert (delta.text, delta.token_ids, delta.lengths) == ("hel", [1, 2, 3], [0, 5, 6])
    assert scene.aborts == [["a"]]


async def test_an_embedding_is_a_whole_answer() -> None:
    scene = OutputScene()
    scene.enter("a")
    scene.output.process(embedding_frame([FrameRow(id="a")], [[0.0]]))
    row = FrameRow(id="a", finish=STOP, extra_info={"pooling": "mean"})
    scene.output.process(embedding_frame([row, FrameRow(id="x", finish=STOP)], [[1.0, -2.0], []], weight_version="v3"))
    delta = await scene.take("a")
    assert (delta.embedding, delta.finish, delta.weight_version) == ([1.0, -2.0], STOP, "v3")
    assert (delta.prompt_tokens, delta.completion_tokens) == (3, 0)
    assert delta.extras is not None
    assert delta.extras.extra_info == {"pooling": "mean"}
    assert scene.meter.frames == [(1, 0, 0), (2, 1, 0)]
    assert scene.aborts == []
    assert len(scene.output) == 0


@pytest.mark.parametrize(
    ("finish", "vector", "kind"),
    [
        (Finish(FinishKind.ERROR, code="context_length_exceeded", message="m"), [], ContextLengthExceeded),
        (STOP, [1.0, math.nan], InvalidLogits),
        (STOP, [math.inf, -math.inf], InvalidLogits),
    ],
)
async def test_an_embedding_can_fail_alone(finish: Finish, vector: list[float], kind: type[TailraceError]) -> None:
    scene = OutputScene()
    scene.enter("a")
    scene.enter("b")
    rows = [FrameRow(id="a", finish=finish), FrameRow(id="b", finish=STOP)]
    scene.output.process(embedding_frame(rows, [vector, [1.0]]))
    await fails(scene, "a", kind)
    assert (await scene.take("b")).embedding == [1.0]
    assert sorted(record.reason for record in scene.meter.finished) == ["error", "stop"]


async def test_law_8_a_request_leaves_once_whoever_ends_it() -> None:
    scene = OutputScene()
    state = scene.enter("a")
    scene.output.cancel(state, "client_disconnect")
    scene.output.cancel(state, "client_disconnect")
    scene.output.fail([state], Aborted("late"))
    assert scene.aborts == [["a"]]
    assert [(record.reason, record.code) for record in scene.meter.finished] == [("abort", "client_disconnect")]
    assert (len(scene.output), scene.idle) == (0, 1)


async def test_a_finished_request_is_not_aborted() -> None:
    scene = OutputScene()
    state = scene.enter("a")
    scene.output.process(token_frame([FrameRow(id="a", ids=[*b"a"], finish=LENGTH)]))
    scene.output.cancel(state, "left")
    assert scene.aborts == []
    assert scene.meter.finished[0].reason == "length"


async def test_all_fail_at_once_and_a_dead_engine_is_not_told() -> None:
    scene = OutputScene()
    for name in "ab":
        scene.enter(name)
    scene.output.fail_all(EngineDied("gone"), in_engine=False)
    assert scene.aborts == []
    for name in "ab":
        await fails(scene, name, EngineDied)
    for name in "cd":
        scene.enter(name)
    scene.output.fail_all(Aborted("drained"))
    assert scene.aborts == [["c", "d"]]
    assert scene.idle == 2


class BrokenSink:
    """A sink whose renderer breaks."""

    def __init__(self) -> None:
        self.errors: list[TailraceError] = []

    def deliver(self, delta: Delta) -> bool:
        raise RuntimeError("rendering broke")

    def fail(self, error: TailraceError) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("finish", [None, STOP])
async def test_law_9_a_sink_that_breaks_ends_its_own_request_alone(finish: Finish | None) -> None:
    scene = OutputScene()
    sink = BrokenSink()
    scene.enter("a").collector.attach(sink)
    scene.enter("b")
    rows: list[Any] = [FrameRow(id="a", ids=[*b"a"], finish=finish), FrameRow(id="b", ids=[*b"b"])]
    scene.output.process(token_frame(rows))
    assert [type(error) for error in sink.errors] == [InternalFault]
    assert (await scene.take("b")).text == "b"


@given(st.data())
async def test_latency_sees_each_token_once(data: st.DataObject) -> None:
    """S14: one first token, the others as gaps, by both clocks; what a stop string cut off is not a token."""
    runs = data.draw(cuts([*b"abcdefgh"]))
    scene = OutputScene()
    scene.enter("a", stop=("g",))
    sent = 0
    for number, run in enumerate(runs):
        sent += len(run)
        scene.output.process(token_frame([FrameRow(id="a", ids=run, total=sent)], timestamp=float(number)))
    assert len(scene.meter.first_tokens) == 1
    assert sum(tokens for _, tokens in scene.meter.gaps) == 6
    assert sum(tokens for _, tokens in scene.meter.engine_gaps) == 6
    assert all(seconds >= 0.0 for seconds, _ in [*scene.meter.gaps, *scene.meter.engine_gaps])


async def test_the_record_of_a_finished_request() -> None:
    scene = OutputScene()
    scene.enter("a", logprobs=LogprobParams())
    logprobs = sampled_logprobs([-1.0, -1.0])
    scene.output.process(token_frame([FrameRow(id="a", ids=[*b"ab"], cached=2, logprobs=logprobs)]))
    scene.output.process(token_frame([FrameRow(id="a", finish=LENGTH, total=2, cached=2)]))
    (record,) = scene.meter.finished
    assert (record.reason, record.code, record.stream) == ("length", "", True)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (3, 2, 2)
    assert record.logprob_rows == 2
    assert record.time_to_first_token is not None
    assert record.time_per_output_token == 0.0
    assert record.e2e_latency >= record.time_to_first_token >= 0.0


async def test_a_request_without_tokens_has_no_times() -> None:
    scene = OutputScene()
    state = scene.enter("a")
    scene.output.cancel(state, "left")
    (record,) = scene.meter.finished
    assert record.time_to_first_token is None
    assert record.time_per_output_token is None
