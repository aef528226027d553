"""Cases of logprobs: one entry a token, exact values, true bytes: laws 2 to 5."""

import itertools
import math
from typing import Any

from engines.scripted.faults import Fault, Miscount, NotANumber
from engines.scripted.script import Script
from engines.scripted.values import ListedValues
from tests.cases.answers import both_chats, both_completions
from tests.cases.loading import Case
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.wire import ChatEntry, CompletionChoice, LegacyLogprobs, chat, completion

FLOOR = -9999.0


def logprobs_of(choice: CompletionChoice) -> LegacyLogprobs:
    """The logprobs of a choice that must have them."""
    assert choice.logprobs is not None
    return choice.logprobs


def check_offsets(choice: CompletionChoice, hidden: int = 0) -> None:
    """Law 4: offsets cut the text into the tokens' visible parts; the last `hidden` tokens have none."""
    offsets = [*logprobs_of(choice).text_offset, len(choice.text)]
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    parts = [choice.text[start:end] for start, end in itertools.pairwise(offsets)]
    assert "".join(parts) == choice.text
    assert all(not part for part in parts[len(parts) - hidden :])


@covers("LP-02")
async def offsets(case: Case, stage: Stage) -> None:
    texts = [" gamma delta.", " Ü é\u0301 漢字 🙂👨‍👩‍👧 end"]
    async with stage.serve() as live:
        for text in texts:
            token_ids = stage.ids(text)
            stage.say(Script(token_ids=token_ids))
            body = case.request.json | {"max_tokens": len(token_ids)}
            for choice in await both_completions(live, body):
                assert choice.text == text
                check_offsets(choice)
                assert choice.finish_reason == "length"


@covers("LP-04")
async def alternatives_of_one_text(case: Case, stage: Stage) -> None:
    """Parts of characters print alike, special tokens may: each keeps a key and a value of its own."""
    parts = stage.lone_bytes(0xF0, 0x9F, 0x98, 0xA0)
    words = stage.ids(" true") + stage.ids("true")
    others = [*parts, *words, *stage.ids(" false"), *range(100, 110)]
    values = [-0.25 - place for place in range(len(others))]
    distribution = dict(zip(others, values, strict=True))
    # The first token is the most likely one, the second lies outside every top list.
    script = Script(token_ids=[others[0], others[-1]], values=ListedValues([distribution]))
    async with stage.serve() as live:
        stage.say(script)
        known: dict[str, float] = {}
        for count in (1, 2, 5, 10):
            body = case.request.json | {"logprobs": count, "max_tokens": 2}
            for choice in await both_completions(live, body):
                first, second = logprobs_of(choice).top_logprobs or []
                assert first is not None
                assert second is not None
                assert list(first.values()) == values[:count]
                assert list(second.values()) == [*values[:count], values[-1]]
                for key, value in (first | second).items():
                    assert known.setdefault(key, value) == value
        assert {"bytes:\\xf0", " true", "true"} <= known.keys()


@covers("LP-06")
async def bytes_of_parts(case: Case, stage: Stage) -> None:
    text = "I like 🙂漢字 é"
    token_ids = stage.ids(text)
    assert len(token_ids) > len(text) // 2
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 3}
    async with stage.serve() as live:
        stage.say(Script(token_ids=[*token_ids, stage.eos]))
        for choice in await both_chats(live, body):
            assert choice.text == text
            assert choice.logprobs is not None
            *visible, end = choice.logprobs.content
            joined = b"".join(bytes(entry.bytes or []) for entry in visible)
            assert joined.decode() == text
            assert end.token == "<|im_end|>"
            for entry, token_id in zip(visible, token_ids, strict=True):
                assert bytes(entry.bytes or []) == stage.bytes_of(token_id)
                for alternative in entry.top_logprobs:
                    assert alternative.bytes != list("\ufffd".encode())
        echoed = completion(await live.client.post(case.request.path, case.request.json | {"max_tokens": 0}))
        keys = logprobs_of(echoed.choice).tokens
        assert [bytes_of_key(key) for key in keys] == [stage.bytes_of(token_id) for token_id in token_ids]


def bytes_of_key(key: str) -> bytes:
    """What a legacy key stands for."""
    pieces = key.removeprefix("bytes:").split("\\x")[1:]
    return bytes(int(piece, 16) for piece in pieces) if key.startswith("bytes:") else key.encode()


@covers("LP-07")
async def readable_tokens(case: Case, stage: Stage) -> None:
    text = " The weather 今天 is fine"
    token_ids = stage.ids(text)
    async with stage.serve() as live:
        stage.say(Script(token_ids=token_ids))
        body = case.request.json | {"max_tokens": len(token_ids)}
        for choice in await both_chats(live, body):
            assert choice.logprobs is not None
            for entry, token_id in zip(choice.logprobs.content, token_ids, strict=True):
                check_readable(entry, stage.bytes_of(token_id))
            assert choice.logprobs.content[0].token == " The"


def check_readable(entry: ChatEntry, raw: bytes) -> None:
    """The token is the text of its own bytes, and so are its alternatives."""
    assert entry.token == raw.decode(errors="replace")
    for token in (entry, *entry.top_logprobs):
        assert "Ġ" not in token.token
        assert bytes(token.bytes or []).decode(errors="replace") == token.token


@covers("LP-09")
async def streamed_logprobs(case: Case, stage: Stage) -> None:
    token_ids = stage.ids(" 3 + 4 = 7")[:4]
    async with stage.serve() as live:
        stage.say(Script(token_ids=token_ids))
        events = await live.client.events(case.request.path, case.request.json)
        for event in events:
            assert event["choices"][0]["logprobs"] is not None
        for choice in await both_completions(live, case.request.json):
            assert len(logprobs_of(choice).tokens) == 4
            assert all(3 <= len(top or {}) <= 4 for top in logprobs_of(choice).top_logprobs or [])


@covers("LP-10")
async def cuts_agree(case: Case, stage: Stage) -> None:
    """Whatever the grouping: tokens after the one that completed the stop never appear, in none of the columns."""
    text = " ha hi ha ha ho ho"
    token_ids = stage.ids(text)
    async with stage.serve() as live:
        for grouping in ([], [len(token_ids)], [2, 3, 1], [1, 4]):
            stage.say(Script(token_ids=token_ids, grouping=grouping))
            for choice in await both_completions(live, case.request.json):
                assert (choice.text, choice.finish_reason) == (" ha hi", "stop")
                assert choice.stop_reason == " ha ha"
                assert choice.token_ids == stage.ids(" ha hi ha ha")
                check_columns(choice)
            body = {key: value for key, value in case.request.json.items() if key != "stop"}
            (stop_id,) = stage.ids(" ho")
            for choice in await both_completions(live, body | {"stop_token_ids": [stop_id]}):
                assert (choice.text, choice.stop_reason) == (" ha hi ha ha", stop_id)
                assert choice.token_ids == stage.ids(" ha hi ha ha ho")
                check_columns(choice)


def check_columns(choice: CompletionChoice) -> None:
    """Law 3: ids, entries and offsets are of one length."""
    assert len(choice.token_ids or []) == len(logprobs_of(choice).tokens)


@covers("LP-12")
async def infinite_values(case: Case, stage: Stage) -> None:
    a, b = stage.ids(" a")[0], stage.ids(" b")[0]
    values = ListedValues([{a: -0.5}, {b: -1e38, a: -math.inf}])
    script = Script(token_ids=[a, a], values=values)
    body: dict[str, Any] = {"model": "m", "prompt": "A", "max_tokens": 2, "logprobs": 2}
    async with stage.serve() as live:
        stage.say(script)
        refusal = await live.client.post(case.request.path, case.request.json)
        assert (refusal.status, refusal.error.param) == (400, "regex")
        for choice in await both_completions(live, body):
            logprobs = logprobs_of(choice)
            assert logprobs.token_logprobs == [-0.5, FLOOR]
            first, second = logprobs.top_logprobs or []
            assert list((first or {}).values()) == [-0.5, FLOOR]
            assert set((second or {}).values()) == {FLOOR}
        messages = {"model": "m", "messages": [{"role": "user", "content": "A"}], "max_tokens": 2}
        for chosen in await both_chats(live, messages | {"logprobs": True, "top_logprobs": 2}):
            assert chosen.logprobs is not None
            assert chosen.logprobs.content[1].logprob == FLOOR
        stage.say(Script(token_ids=[a, a], values=values, faults=[NotANumber(at=1)]))
        reply = await live.client.post("/v1/completions", body)
        assert (reply.status, reply.error.code) == (500, "invalid_logits")
        *good, bad = await live.client.events("/v1/completions", body)
        assert len(good) == 1
        assert bad["error"]["code"] == "invalid_logits"


@covers("LP-16")
async def which_distribution(case: Case, stage: Stage) -> None:
    body = {"model": "m", "prompt": "The sky is", "max_tokens": 2, "logprobs": 3, "temperature": 0.3}
    raw, processed = "raw_logprobs", "processed_logprobs"
    for setting, wishes in ((raw, {None: raw, processed: processed}), (processed, {None: processed, raw: raw})):
        async with stage.serve(logprobs_mode=setting) as live:
            for asked, told in wishes.items():
                request = body | ({"logprobs_mode": asked} if asked else {})
                reply = await live.client.post("/v1/completions", request)
                assert reply.json["logprobs_mode"] == told
                for event in await live.client.events("/v1/completions", request):
                    assert event["logprobs_mode"] == told
                for submitted in live.engine.submitted[-2:]:
                    assert submitted.logprobs is not None
                    assert submitted.logprobs.mode == told
                generated = await live.client.post(
                    "/generate", case.request.json | ({"logprobs_mode": asked} if asked else {})
                )
                assert generated.json["meta_info"]["logprobs_mode"] == told
                assert live.engine.submitted[-1].logprobs is not None
                assert live.engine.submitted[-1].logprobs.mode == told
            assert "logprobs_mode" not in (await live.client.post("/v1/completions", body | {"logprobs": None})).json


@covers("LP-17")
async def entries_out_of_step(case: Case, stage: Stage) -> None:
    """An engine that lost or doubled a token is found out: the request fails, its data is not passed on."""
    token_ids = stage.ids(" one two three four")
    body = {"model": "m", "prompt": "count", "max_tokens": len(token_ids), "logprobs": 1}
    faults: list[Fault] = [Miscount(at=2, by=1), Miscount(at=2, by=-1)]
    async with stage.serve() as live:
        for fault in faults:
            stage.say(Script(token_ids=token_ids, faults=[fault]))
            reply = await live.client.post("/v1/completions", body)
            assert (reply.status, reply.error.code) == (500, "engine_fault")
            *good, bad = await live.client.events("/v1/completions", body)
            assert len(good) == 2
            assert bad["error"]["code"] == "engine_fault"
            native = {"text": "count", "return_logprob": True, "sampling_params": {"max_new_tokens": len(token_ids)}}
            reply = await live.client.post("/generate", native)
            assert (reply.status, reply.error.code) == (500, "engine_fault")
            *good, bad = await live.client.events("/generate", native)
            for event in good:
                triples = event["meta_info"]["output_token_logprobs"]
                assert [token_id for _, token_id, _ in triples] == event["output_ids"]
            assert bad["error"]["code"] == "engine_fault"


@covers("RL-01")
async def ids_in_and_out(case: Case, stage: Stage) -> None:
    token_ids = [*stage.ids("21 🙂"), stage.eos]
    async with stage.serve() as live:
        stage.say(Script(token_ids=token_ids))
        events = await live.client.events(case.request.path, case.request.json)
        assert [event["prompt_token_ids"] for event in events if "prompt_token_ids" in event] == [
            live.engine.submitted[0].prompt_token_ids
        ]
        assert [event["choices"][0].get("token_ids") for event in events][1:] == [[token_id] for token_id in token_ids]
        for choice in await both_chats(live, case.request.json):
            assert choice.token_ids == token_ids
            assert choice.logprobs is not None
            assert len(choice.logprobs.content) == len(token_ids)
        whole = chat(await live.client.post(case.request.path, case.request.json | {"stream": False}))
        assert whole.usage is not None
        assert whole.usage.completion_tokens == len(token_ids)
        # Fed back, ids are taken as they are: never decoded and encoded again.
        fed = [*(whole.prompt_token_ids or []), *token_ids, *stage.lone_bytes(0xF0, 0x9F)]
        back = completion(
            await live.client.post("/v1/completions", {"model": "m", "prompt": fed, "return_token_ids": True})
        )
        assert back.choice.prompt_token_ids == fed
        assert live.engine.submitted[-1].prompt_token_ids == fed
        scored = {"model": "m", "prompt": fed, "echo": True, "logprobs": 0, "max_tokens": 0, "return_token_ids": True}
        again = completion(await live.client.post("/v1/completions", scored))
        assert again.choice.prompt_token_ids == fed
        assert len(logprobs_of(again.choice).tokens) == len(fed)
