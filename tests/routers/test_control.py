"""/abort_request: exact names, every request of a name, and what each route's client sees of it."""

import asyncio
from typing import Any

import pytest

from engines.protocol import Finish, FinishKind
from engines.scripted.script import Script
from tests.cases.stage import Stage
from tests.client import Reply
from tests.generate_wire import PATH, Abort, Generated, Stopped, generated, latest
from tests.serving import LiveServer

ABORT = "/abort_request"
MESSAGE = "The request was aborted."
COMPLETIONS: tuple[str, dict[str, Any]] = ("/v1/completions", {"prompt": "x"})
CHAT: tuple[str, dict[str, Any]] = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})


async def abort(live: LiveServer, **body: Any) -> None:
    reply = await live.client.post(ABORT, body)
    assert (reply.status, reply.body) == (200, b"")


class Scene:
    """Requests that wait, in the order they were begun."""

    def __init__(self, stage: Stage, live: LiveServer) -> None:
        self.live = live
        self._stage = stage
        stage.say(Script(token_ids=stage.ids("one two three four"), cycle=True))

    async def begin(self, path: str, body: dict[str, Any], sequences: int = 1, **headers: str) -> asyncio.Task[Reply]:
        """Send a request, and return once the engine has it."""
        count = len(self.live.engine.submitted) + sequences
        task = asyncio.create_task(self.live.client.post(path, body, headers=headers))
        await self.live.engine.until_submitted(count)
        return task

    def step(self, count: int) -> None:
        for _ in range(count):
            self._stage.engine.step()

    async def end(self, *tasks: asyncio.Task[Reply]) -> None:
        """Fail if one of them has ended; abort everything."""
        assert not any(task.done() for task in tasks)
        await abort(self.live, abort_all=True)
        await asyncio.gather(*tasks)


def check_aborted(answer: Generated, text: str, message: str = MESSAGE) -> None:
    """An abort is an answer here: what there is, and why there is no more."""
    assert answer.meta_info.finish_reason == Abort(message, None, None)
    assert answer.text == text


async def test_the_partial_answer_comes_with_the_abort(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        body = {"text": "x", "rid": "mine", "return_logprob": True, "sampling_params": {"stop": "two three four five"}}
        task = await scene.begin(PATH, body)
        scene.step(3)
        await abort(live, rid="mine")
        (answer,) = generated(await task)
        # What a stop string held back is let go.
        check_aborted(answer, "one two three")
        assert answer.output_ids == stage.ids("one two three")
        assert len(answer.meta_info.output_token_logprobs or []) == 3
        assert live.engine.aborted == [live.engine.submitted[0].id]


async def test_a_request_that_waits_for_its_first_token_can_be_aborted(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        task = await scene.begin(PATH, {"text": "x", "rid": "mine"})
        await abort(live, rid="mine")
        (answer,) = generated(await task)
        check_aborted(answer, "")
        assert answer.output_ids == []


@pytest.mark.parametrize("incremental", [True, False])
async def test_a_stream_ends_with_the_abort_and_the_end_mark(stage: Stage, incremental: bool) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        body = {"text": "x", "rid": "mine", "incremental": incremental}
        async with stage.open_stream(live, PATH, body) as stream:
            assert (await stream.next())["text"] == "one"
            await abort(live, rid="mine")
            *chunks, end = [event async for event in stream]
            assert end.done
            (last,) = [event.json for event in chunks]
        assert last["text"] == ("" if incremental else "one")
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        assert scene.live.engine.aborted == [live.engine.submitted[0].id]


async def test_names_match_whole(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        tasks = {name: await scene.begin(PATH, {"text": "x", "rid": name}) for name in ("1", "10", "01", "1 ", "a")}
        for unknown in ("", "0", "b", "1*", "1\u0000"):
            await abort(live, rid=unknown)
        assert live.engine.aborted == []
        await abort(live, rid="1")
        check_aborted(generated(await tasks.pop("1"))[0], "")
        assert len(live.engine.aborted) == 1
        await scene.end(*tasks.values())


async def test_every_request_of_a_name_is_aborted(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        same = [await scene.begin(PATH, {"text": "x", "rid": "same"}) for _ in range(3)]
        other = await scene.begin(PATH, {"text": "x", "rid": "other"})
        scene.step(1)
        await abort(live, rid="same")
        for reply in await asyncio.gather(*same):
            check_aborted(generated(reply)[0], "one")
        assert len(live.engine.aborted) == 3
        await scene.end(other)


async def test_a_batch_is_aborted_by_its_name_or_member_by_member(stage: Stage) -> None:
    batch = {"text": ["a", "b"], "rid": "r"}
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        task = await scene.begin(PATH, batch, 2)
        scene.step(2)
        await abort(live, rid="r_1")
        assert live.engine.aborted == [live.engine.submitted[1].id]
        scene.step(1)
        await abort(live, rid="r_0")
        first, second = generated(await task)
        check_aborted(first, "one two three")
        check_aborted(second, "one two")
        task = await scene.begin(PATH, batch, 2)
        await abort(live, rid="r")
        for answer in generated(await task):
            check_aborted(answer, "")
        task = await scene.begin(PATH, {"text": "a", "rid": "n", "sampling_params": {"n": 2}}, 2)
        await abort(live, rid="n_0")
        scene.step(1)
        await abort(live, rid="n")
        first, second = generated(await task)
        check_aborted(first, "")
        check_aborted(second, "one")
        task = await scene.begin(PATH, batch | {"rid": ["a", "b"], "sampling_params": {"n": 2}}, 4)
        await abort(live, rid="a")
        scene.step(1)
        await abort(live, rid="b")
        assert [answer.text for answer in generated(await task)] == ["", "", "one", "one"]


async def test_a_member_that_ended_keeps_its_answer(stage: Stage) -> None:
    params = [{"max_new_tokens": 1}, {}]
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        task = await scene.begin(PATH, {"text": ["a", "b"], "rid": "r", "sampling_params": params}, 2)
        scene.step(2)
        await abort(live, rid="r")
        first, second = generated(await task)
        assert (first.text, first.meta_info.completion_tokens) == ("one", 1)
        assert not isinstance(first.meta_info.finish_reason, Abort)
        check_aborted(second, "one two")


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT], ids=["completions", "chat"])
@pytest.mark.parametrize("field", ["rid", "request_id", "header"])
async def test_openai_routes_answer_with_an_error(stage: Stage, route: tuple[str, dict[str, Any]], field: str) -> None:
    path, body = route
    named = body if field == "header" else body | {field: "mine"}
    headers = {"X-Request-Id": "mine"} if field == "header" else {}
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        task = await scene.begin(path, named, 1, **headers)
        scene.step(2)
        await abort(live, rid="mine")
        reply = await task
        assert (reply.status, reply.error.code, reply.error.message) == (503, "aborted", MESSAGE)
        early = asyncio.create_task(live.client.post(path, named | {"stream": True}, headers=headers))
        await live.engine.until_submitted(2)
        await abort(live, rid="mine")
        reply = await early
        assert (reply.status, reply.error.code) == (503, "aborted")


@pytest.mark.parametrize("route", [COMPLETIONS, CHAT], ids=["completions", "chat"])
async def test_openai_streams_end_with_an_error_event(stage: Stage, route: tuple[str, dict[str, Any]]) -> None:
    path, body = route
    async with stage.serve(stepped=True) as live:
        Scene(stage, live)
        async with stage.open_stream(live, path, body | {"rid": "mine"}) as stream:
            await stream.next()
            await abort(live, rid="mine")
            *chunks, error = await stream.rest()
        assert error["error"]["code"] == "aborted"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_one_sample_aborted_ends_an_openai_answer_of_several(stage: Stage) -> None:
    """A whole answer without one of its choices would be none."""
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        task = await scene.begin("/v1/completions", {"prompt": ["x", "y"], "n": 2, "rid": "mine"}, 4)
        await abort(live, rid="mine")
        assert (await task).status == 503
        await live.engine.until_empty()
        assert sorted(live.engine.aborted) == sorted(request.id for request in live.engine.submitted)
        assert len(live.engine.aborted) == 4
        scene.step(1)


async def test_all_means_all(stage: Stage) -> None:
    async with stage.serve(stepped=True) as live:
        scene = Scene(stage, live)
        native = await scene.begin(PATH, {"text": ["x", "y"]}, 2)
        tasks = [await scene.begin(*COMPLETIONS), await scene.begin(*CHAT)]
        scene.step(1)
        await abort(live, rid="whatever", abort_all=True)
        for answer in generated(await native):
            check_aborted(answer, "one", "All requests were aborted.")
        for reply in await asyncio.gather(*tasks):
            assert (reply.status, reply.error.code) == (503, "aborted")
        assert len(set(live.engine.aborted)) == len(live.engine.aborted) == 4


async def test_an_abort_by_the_engine_is_told_with_its_words(stage: Stage) -> None:
    finish = Finish(FinishKind.ABORT, message="Out of memory.")
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("one two"), finish=finish, finish_apart=True))
        (whole,) = generated(await live.client.post(PATH, {"text": "x"}))
        (streamed,) = latest(await live.client.events(PATH, {"text": "x"}), 1)
        for answer in (whole, streamed):
            check_aborted(answer, "one two", "Out of memory.")
        assert live.engine.aborted == []


async def test_what_has_ended_is_not_aborted(stage: Stage) -> None:
    async with stage.serve() as live:
        (answer,) = generated(await live.client.post(PATH, {"text": "x", "rid": "mine"}))
        await abort(live, rid="mine")
        await abort(live, rid="mine")
        assert answer.meta_info.finish_reason == Stopped(None)
        assert live.engine.aborted == []


async def test_wrong_requests_are_refused(stage: Stage) -> None:
    async with stage.serve() as live:
        for body, param in [({"rid": 5}, "rid"), ({"abort_all": "yes"}, "abort_all")]:
            reply = await live.client.post(ABORT, body)
            assert (reply.status, reply.error.param) == (400, param)
        reply = await live.client.post(ABORT, {"rid": "x", "reason": "y"})
        assert reply.headers["x-tailrace-ignored"] == "reason"
