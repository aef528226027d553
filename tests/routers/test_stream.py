"""Streamed answers over real sockets: status, order, failures amid the stream, slow readers, leavers, pings."""

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sse_starlette import EventSourceResponse

from engines.protocol import Finish, FinishKind
from engines.scripted.faults import Failure, NotANumber, Stall
from engines.scripted.script import Script
from processors.delta import Delta
from processors.dialects.openai_completions import CompletionsRenderer
from tests.cases.stage import Stage
from tests.client import GUARD, EventStream
from tests.serving import LiveServer
from tests.wire import join_completion

COMPLETIONS = "/v1/completions"
BODY: dict[str, Any] = {"prompt": "Once", "max_tokens": 8}


@pytest.mark.parametrize(("code", "status"), [("overloaded", 503), ("engine_fault", 500), ("invalid_logits", 500)])
async def test_an_error_before_the_first_event_has_its_own_status(stage: Stage, code: str, status: int) -> None:
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("never"), faults=[Failure(at=0, code=code)]))
        reply = await live.client.post(COMPLETIONS, BODY | {"stream": True})
        assert reply.status == status
        assert reply.error.code == code


async def test_an_error_amid_the_stream_is_one_event_and_the_end_mark(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("one two three four"), faults=[Failure(at=2, message="It broke.")]))
        async with live.client.stream(COMPLETIONS, BODY) as stream:
            *chunks, last = [event async for event in stream]
            assert last.done
            *texts, error = [event.json for event in chunks]
        assert [chunk["choices"][0]["text"] for chunk in texts] == ["one", " two"]
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in texts)
        assert error == {
            "error": {"message": "It broke.", "type": "server_error", "param": None, "code": "engine_fault"}
        }


async def test_a_nan_logprob_fails_the_request_and_the_engine_is_told_once(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        stage.say(Script(token_ids=stage.ids("one two three four five six"), faults=[NotANumber(at=1)]))
        async with stepping(stage, live, 2), live.client.stream(COMPLETIONS, BODY | {"logprobs": 1}) as stream:
            assert (await stream.next())["choices"][0]["text"] == "one"
            assert (await stream.next())["error"]["code"] == "invalid_logits"
            assert await stream.rest() == []
        assert live.engine.aborted == [live.engine.submitted[0].id]


async def test_a_renderer_that_fails_ends_the_stream_with_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = CompletionsRenderer.delta

    def fail_at_the_third(self: CompletionsRenderer, index: int, delta: Delta) -> bytes:
        if delta.completion_tokens == 3:
            raise ZeroDivisionError
        return rendered(self, index, delta)

    async with stage.serve(stepped=True) as live:
        monkeypatch.setattr(CompletionsRenderer, "delta", fail_at_the_third)
        stage.say(Script(token_ids=stage.ids("one two three four five six")))
        async with stepping(stage, live, 1), live.client.stream(COMPLETIONS, BODY) as stream:
            texts = [(await stream.next())["choices"][0]["text"]]
            stage.engine.step()
            texts.append((await stream.next())["choices"][0]["text"])
            stage.engine.step()
            error = (await stream.next())["error"]
            assert await stream.rest() == []
        assert texts == ["one", " two"]
        assert error["code"] == "internal_error"
        assert "ZeroDivision" not in error["message"]
        await live.engine.until_empty()
        assert live.engine.aborted == [live.engine.submitted[0].id]


async def test_an_abort_by_the_engine_is_an_error_and_no_fake_success(stage: Stage) -> None:
    aborted = Script(token_ids=stage.ids("one two"), finish=Finish(FinishKind.ABORT), finish_apart=True)
    async with stage.serve() as live:
        stage.say(aborted)
        events = await live.client.events(COMPLETIONS, BODY)
        assert events[-1]["error"]["code"] == "aborted"
        assert all(event["choices"][0]["finish_reason"] is None for event in events[:-1])
        reply = await live.client.post(COMPLETIONS, BODY)
        assert reply.status == 503
        assert reply.error.code == "aborted"


async def test_events_come_one_by_one_with_their_frames(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        stage.say(stage.script("one two three"))
        async with stepping(stage, live, 1), live.client.stream(COMPLETIONS, BODY) as stream:
            assert (await stream.next())["choices"][0]["text"] == "one"
            for text in [" two", " three"]:
                stage.engine.step()
                assert (await stream.next())["choices"][0]["text"] == text


async def test_a_slow_reader_gets_larger_events_and_loses_nothing(stage: Stage) -> None:
    said = stage.ids("word " * 8000)
    async with stage.serve(stepped=True) as live:
        stage.say(Script(token_ids=said, finish=Finish(FinishKind.LENGTH)))
        # More than any kernel buffers between the two sockets.
        body = {"prompt": "x", "max_tokens": len(said), "stream": True, "logprobs": 20, "return_token_ids": True}
        slow = await live.connect(receive_buffer=4096)
        slow.stop_reading()
        slow.send_request("POST", COMPLETIONS, body, {"Connection": "close"})
        await live.engine.until_submitted(1)
        brisk_body = {"prompt": "y", "max_tokens": 200}
        async with stepping(stage, live, 1), live.client.stream(COMPLETIONS, brisk_body) as brisk:
            assert await brisk.next()
            for _ in range(199):
                stage.engine.step()
                assert await brisk.next()
            assert await brisk.rest() == []
        while live.engine.live:
            stage.engine.step()
        slow.resume_reading()
        events = events_of(await slow.read_to_end())
        whole = join_completion(events).choice
    assert whole.token_ids == said
    assert whole.text == "word " * 8000
    assert whole.logprobs is not None
    assert len(whole.logprobs.tokens) == len(said)
    assert whole.finish_reason == "length"
    assert len(events) < len(said)


async def test_a_reader_that_takes_nothing_is_cut_off_and_its_request_aborted(stage: Stage) -> None:
    async with stage.serve(send_timeout=0.2) as live:
        stage.say(Script(token_ids=stage.ids("word " * 100), cycle=True))
        stuck = await live.connect(receive_buffer=4096)
        stuck.stop_reading()
        stuck.send_request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 8000, "logprobs": 20, "stream": True})
        await live.engine.until_submitted(1)
        await live.engine.until(lambda: bool(live.engine.aborted))
        assert live.engine.aborted == [live.engine.submitted[0].id]
        reply = await live.client.post(COMPLETIONS, BODY)
        assert reply.status == 200


async def test_pings_are_comments_in_silence_only(stage: Stage) -> None:
    async with stage.serve(stepped=True, ping_interval=0.05) as live:
        stage.say(Script(token_ids=stage.ids("one two")))
        async with stepping(stage, live, 1), live.client.stream(COMPLETIONS, BODY | {"max_tokens": 2}) as stream:
            kinds = [await kind_of_next(stream) for _ in range(3)]
            stage.engine.step()
            rest = [event async for event in stream]
        assert kinds == ["data", "comment", "comment"]
        assert rest[-1].done


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("steps", [0, 3])
async def test_a_client_that_leaves_ends_its_request(stage: Stage, stream: bool, steps: int) -> None:
    async with stage.serve(stepped=True) as live:
        stage.say(Script(token_ids=stage.ids("one two three four five six seven")))
        leaver = await live.connect()
        leaver.send_request("POST", COMPLETIONS, BODY | {"stream": stream})
        await live.engine.until_submitted(1)
        for _ in range(steps):
            stage.engine.step()
        await leaver.reset()
        await live.engine.until_empty()
        assert live.engine.aborted == [live.engine.submitted[0].id]


async def test_a_stall_of_the_engine_does_not_keep_a_leaver(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("one two three"), faults=[Stall(at=1)]))
        async with live.client.stream(COMPLETIONS, BODY) as stream:
            await stream.next()
        await live.engine.until_empty()
        assert len(live.engine.aborted) == 1


async def test_streams_are_not_to_be_buffered_on_the_road(stage: Stage) -> None:
    async with stage.serve() as live, live.client.stream(COMPLETIONS, BODY) as stream:
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        await stream.rest()


async def test_a_stream_does_not_promise_a_connection_that_closes(stage: Stage) -> None:
    async with stage.serve() as live:
        connection = await live.connect()
        connection.send_request("POST", COMPLETIONS, BODY | {"stream": True}, {"Connection": "close"})
        head, _, _ = (await connection.read_to_end()).partition(b"\r\n\r\n")
    assert [line for line in head.lower().split(b"\r\n") if line.startswith(b"connection:")] == [b"connection: close"]


@pytest.mark.parametrize("name", ["_stream_response", "_listen_for_disconnect", "_listen_for_exit_signal_with_grace"])
def test_the_library_still_has_and_calls_what_is_overridden(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(EventSourceResponse, name))
    assert f"self.{name}" in inspect.getsource(EventSourceResponse.__call__)


@contextlib.asynccontextmanager
async def stepping(stage: Stage, live: LiveServer, count: int) -> AsyncIterator[None]:
    """Step as soon as one more request is in the engine: an answer begins with the engine's first event."""
    before = len(live.engine.submitted)

    async def step() -> None:
        await live.engine.until_submitted(before + 1)
        for _ in range(count):
            stage.engine.step()

    task = asyncio.create_task(step())
    yield
    await task


async def kind_of_next(stream: EventStream) -> str:
    async with asyncio.timeout(GUARD):
        event = await anext(stream)
    return "comment" if event.data is None else "data"


def events_of(answer: bytes) -> list[Any]:
    """JSON of the events in a raw chunked answer."""
    _, _, body = answer.partition(b"\r\n\r\n")
    joined = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        joined += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    lines = [line[6:] for line in joined.split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]
