"""Cases of the stream's form and its one end: laws 6 and 7."""

from typing import Any

from engines.protocol import Finish, FinishKind
from engines.scripted.faults import Death, Failure
from engines.scripted.script import Script
from tests.cases.answers import both_chats
from tests.cases.loading import Case
from tests.cases.registry import covers
from tests.cases.stage import Stage


@covers("PR-01")
async def one_finish_reason(case: Case, stage: Stage) -> None:
    token_ids = stage.ids("it is two")
    endings = [
        (Script(token_ids=[*token_ids, stage.eos]), "stop"),
        (Script(token_ids=[*token_ids, stage.eos], grouping=[len(token_ids) + 1]), "stop"),
        (Script(token_ids=token_ids, finish=Finish(FinishKind.STOP), finish_apart=True), "stop"),
        (Script(token_ids=token_ids, cycle=True), "length"),
    ]
    body = case.request.json | {"stream_options": {"include_usage": True}}
    async with stage.serve() as live:
        for script, reason in endings:
            stage.say(script)
            *events, usage = await live.client.events(case.request.path, body)
            assert usage["choices"] == []
            choices = [event["choices"][0] for event in events]
            assert all("finish_reason" in choice for choice in choices)
            assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [reason]
            for choice in await both_chats(live, case.request.json):
                assert choice.finish_reason == reason


@covers("PR-02")
async def abort_is_no_success(case: Case, stage: Stage) -> None:
    abort = Finish(FinishKind.ABORT, message="Stopped by the operator.")
    body = case.request.json | {"stream": False}
    async with stage.serve() as live:
        stage.say(Script(token_ids=stage.ids("once upon a time"), finish=abort, finish_apart=True))
        *events, last = await live.client.events(case.request.path, case.request.json)
        assert [event["choices"][0]["finish_reason"] for event in events] == [None] * len(events)
        check_error(last, "aborted", "Stopped by the operator.")
        reply = await live.client.post(case.request.path, body)
        assert (reply.status, reply.error.code) == (503, "aborted")
        # Before the first token the status can still tell.
        stage.say(Script(token_ids=[], finish=abort))
        for streamed in (True, False):
            reply = await live.client.post(case.request.path, body | {"stream": streamed})
            assert (reply.status, reply.error.code) == (503, "aborted")
        # SGLang's own route has a finish for it, with what is there.
        said = stage.ids("once upon a time")
        stage.say(Script(token_ids=said, finish=abort, finish_apart=True))
        whole = (await live.client.post("/generate", {"text": "tell"})).json
        ended = {"type": "abort", "message": "Stopped by the operator.", "status_code": None, "err_type": None}
        assert (whole["output_ids"], whole["meta_info"]["finish_reason"]) == (said, ended)
        *events, last = await live.client.events("/generate", {"text": "tell"})
        assert (last["text"], last["meta_info"]["finish_reason"]) == ("once upon a time", ended)
        assert all(event["meta_info"]["finish_reason"] is None for event in events)


@covers("PR-04")
async def failure_amid_the_stream(case: Case, stage: Stage) -> None:
    token_ids = stage.ids("one two three four five six seven eight nine ten")
    async with stage.serve() as live:
        stage.say(Script(token_ids=token_ids, faults=[Failure(at=5, message="The engine failed at a step.")]))
        role, *events, last = await live.client.events(case.request.path, case.request.json)
        assert role["choices"][0]["delta"]["role"] == "assistant"
        assert len(events) == 5
        check_error(last, "engine_fault", "The engine failed at a step.")
        reply = await live.client.post(case.request.path, case.request.json | {"stream": False})
        assert (reply.status, reply.error.code) == (500, "engine_fault")
        stage.say(Script(token_ids=token_ids, faults=[Death(at=5)]))
        *_, last = await live.client.events(case.request.path, case.request.json)
        assert last["error"]["code"] == "engine_died"
        assert "Traceback" not in last["error"]["message"]
        reply = await live.client.post(case.request.path, case.request.json)
        assert (reply.status, reply.error.code) == (503, "engine_unavailable")
        stage.engine.revive()
        stage.say(stage.script("back"))
        for choice in await both_chats(live, case.request.json):
            assert choice.text == "back"
        assert 'request_errors_total{code="engine_died"' in (await live.client.get("/metrics")).body.decode()


def check_error(event: dict[str, Any], code: str, message: str) -> None:
    """The event is an error object in OpenAI's shape and nothing else."""
    assert event.keys() == {"error"}
    assert event["error"].keys() == {"message", "type", "param", "code"}
    assert (event["error"]["code"], event["error"]["message"]) == (code, message)


@covers("PR-05")
async def pings_in_silence_only(case: Case, stage: Stage) -> None:
    """Comments while the engine is silent, none while it speaks, none after the end, none where switched off."""
    body = {"model": "m", "prompt": "x", "max_tokens": 50}
    async with (
        stage.serve(stepped=True, ping_interval=0.02) as live,
        stage.open_stream(live, "/v1/completions", body) as stream,
    ):
        first = await anext(stream)
        assert first.data is not None
        for _ in range(3):
            assert (await anext(stream)).comment == "ping"
        while stage.engine.step():
            pass
        rest = [event async for event in stream]
        assert rest[-1].done
        said = "".join(event.json["choices"][0]["text"] for event in rest[:-1] if event.data is not None)
        assert said == " there, world."
    async with stage.serve(ping_interval=0) as live, live.client.stream("/v1/completions", body) as stream:
        assert all(event.data is not None for event in [event async for event in stream])
