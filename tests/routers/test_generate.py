"""/generate over HTTP: one prompt and batches, options per prompt, ids, text, streams. Law 2 holds in all of them."""

from typing import Any

import pytest

from engines.scripted.script import Script
from tests.cases.stage import Stage
from tests.generate_wire import PATH, Generated, Length, Stopped, generated, latest, thrice

TEXT = "Hello there, world."


def sampling(**params: Any) -> dict[str, Any]:
    return {"sampling_params": {"max_new_tokens": 32, **params}}


async def test_one_prompt_is_answered_by_an_object(stage: Stage) -> None:
    async with stage.serve() as live:
        for prompt in ({"text": "Once upon"}, {"input_ids": stage.ids("Once upon")}):
            (answer,) = await thrice(live, prompt | sampling())
            assert answer.text == TEXT
            assert answer.output_ids == [*stage.ids(TEXT), stage.eos]
            meta = answer.meta_info
            assert meta.finish_reason == Stopped(None)
            assert (meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens) == (2, 6, 0)
            assert meta.weight_version == "default"
            assert meta.logprobs_mode is None
            assert meta.output_token_logprobs is None
            assert meta.input_token_logprobs is None
            reply = await live.client.post(PATH, prompt | sampling())
            assert isinstance(reply.json, dict)
        assert {tuple(request.prompt_token_ids) for request in live.engine.submitted} == {tuple(stage.ids("Once upon"))}


async def test_put_is_post(stage: Stage) -> None:
    async with stage.serve() as live:
        (answer,) = generated(await live.client.request("PUT", PATH, body={"text": "Once"}))
        assert answer.text == TEXT


@pytest.mark.parametrize("count", [1, 3])
async def test_a_list_of_prompts_is_answered_by_a_list(stage: Stage, count: int) -> None:
    prompts = ["Once upon", "a time", "there was a king"][:count]
    async with stage.serve() as live:
        for batch in ({"text": prompts}, {"input_ids": [stage.ids(prompt) for prompt in prompts]}):
            answers = await thrice(live, batch | sampling())
            assert [answer.meta_info.prompt_tokens for answer in answers] == [len(stage.ids(text)) for text in prompts]
            assert [answer.text for answer in answers] == [TEXT] * count
            assert isinstance((await live.client.post(PATH, batch | sampling())).json, list)
            events = await live.client.events(PATH, batch | sampling())
            assert {event["index"] for event in events} == set(range(count))


async def test_samples_come_prompt_after_prompt(stage: Stage) -> None:
    async with stage.serve() as live:
        answers = await thrice(live, {"text": ["Once upon", "a"]} | sampling(n=3, sampling_seed=7))
        assert [answer.meta_info.prompt_tokens for answer in answers] == [2, 2, 2, 1, 1, 1]
        assert [request.sampling.seed for request in live.engine.submitted[:6]] == [7, 8, 9] * 2
        answers = await thrice(live, {"text": "Once upon"} | sampling(n=2))
        assert len(answers) == 2


async def test_options_may_differ_from_prompt_to_prompt(stage: Stage) -> None:
    body: dict[str, Any] = {
        "text": ["Once upon a time", "there was", "a king"],
        "sampling_params": [{"max_new_tokens": 2}, {"max_new_tokens": 3, "temperature": 0}, {}],
        "return_logprob": [True, False, True],
        "logprob_start_len": [0, 0, -1],
        "top_logprobs_num": [2, 0, 0],
        "token_ids_logprob": [[5, 4], None, None],
    }
    async with stage.serve() as live:
        first, second, third = await thrice(live, body)
        asked = [request.sampling for request in live.engine.submitted[:3]]
        assert [(params.max_tokens, params.temperature) for params in asked] == [(2, 1.0), (3, 0.0), (128, 1.0)]
    assert [answer.meta_info.completion_tokens for answer in (first, second, third)] == [2, 3, 6]
    assert first.meta_info.finish_reason == Length(2)
    assert len(first.meta_info.input_token_logprobs or []) == 4
    assert [len(entry or []) for entry in first.meta_info.output_top_logprobs or []] == [2, 2]
    assert [len(entry or []) for entry in first.meta_info.output_token_ids_logprobs or []] == [2, 2]
    assert second.meta_info.output_token_logprobs is None
    assert second.meta_info.logprobs_mode is None
    assert third.meta_info.input_token_logprobs == []
    assert third.meta_info.output_top_logprobs == []
    assert third.meta_info.output_token_ids_logprobs is None


async def test_one_value_stands_for_all_prompts(stage: Stage) -> None:
    body: dict[str, Any] = {
        "text": ["Once upon a time", "there was"],
        "return_logprob": True,
        "logprob_start_len": 1,
        "top_logprobs_num": 1,
        "token_ids_logprob": [5],
    }
    async with stage.serve() as live:
        for answer in await thrice(live, body):
            meta = answer.meta_info
            assert len(meta.input_token_logprobs or []) == meta.prompt_tokens - 1
            assert {len(entry or []) for entry in meta.output_token_ids_logprobs or []} == {1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sampling_params", [{}]),
        ("sampling_params", [{}, {}, {}]),
        ("return_logprob", [True]),
        ("logprob_start_len", []),
        ("logprob_start_len", [0, 0, 0]),
        ("top_logprobs_num", [1, 2, 3]),
        ("token_ids_logprob", [[1], [2], [3]]),
        ("rid", ["a"]),
    ],
)
async def test_law_10_a_list_of_another_length_than_the_batch_is_refused(stage: Stage, field: str, value: Any) -> None:
    async with stage.serve() as live:
        reply = await live.client.post(PATH, {"text": ["Once", "upon"], field: value})
        assert (reply.status, reply.error.param, reply.error.code) == (400, field, "invalid_value")
        assert "2 prompts" in reply.error.message
        single = await live.client.post(PATH, {"text": "Once", field: value})
        assert (single.status, single.error.param) == (400, field)
        assert live.engine.submitted == []
        assert len(generated(await live.client.post(PATH, {"text": "Once"}))) == 1


async def test_samples_of_a_batch_are_of_one_number(stage: Stage) -> None:
    async with stage.serve() as live:
        reply = await live.client.post(PATH, {"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]})
        assert (reply.status, reply.error.param) == (400, "sampling_params.n")


def names(answers: list[Generated]) -> list[str]:
    return [answer.meta_info.id for answer in answers]


async def test_an_answer_tells_the_clients_id(stage: Stage) -> None:
    batch = {"text": ["Once", "upon"]}
    async with stage.serve() as live:

        async def told(body: dict[str, Any]) -> list[str]:
            whole = generated(await live.client.post(PATH, body, headers={"X-Request-Id": "from-header"}))
            events = await live.client.events(PATH, body, headers={"X-Request-Id": "from-header"})
            assert names(latest(events, len(whole))) == names(whole)
            return names(whole)

        assert await told({"text": "Once", "rid": "mine"}) == ["mine"]
        assert await told({"text": "Once"}) == ["from-header"]
        assert await told(batch | {"rid": "mine"}) == ["mine_0", "mine_1"]
        assert await told(batch | {"rid": ["one", "two"]}) == ["one", "two"]
        assert await told(batch | {"rid": ["same", "same"]}) == ["same", "same"]
        assert await told(batch) == ["from-header_0", "from-header_1"]
        assert await told({"text": "Once", "rid": "mine"} | sampling(n=2)) == ["mine_0", "mine_1"]
        assert await told(batch | {"rid": ["a", "b"]} | sampling(n=2)) == ["a_0", "a_1", "b_0", "b_1"]
        ids = [request.id for request in live.engine.submitted]
        assert len(set(ids)) == len(ids)
        assert not {"mine", "mine_0", "same"} & set(ids)


async def test_a_stop_string_cuts_the_text_and_no_stop_trim_keeps_it(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(stage.script("one two STOP three", grouping=[2, 3]))
        (answer,) = await thrice(live, {"text": "x", "return_logprob": True} | sampling(stop=["STOP", "never"]))
        assert (answer.text, answer.meta_info.finish_reason) == ("one two ", Stopped("STOP"))
        assert answer.output_ids == stage.ids("one two STOP")
        (answer,) = await thrice(live, {"text": "x"} | sampling(stop="STOP", no_stop_trim=True))
        assert answer.text == "one two STOP"
        (answer,) = await thrice(live, {"text": "x"} | sampling(stop="two", min_new_tokens=3))
        assert answer.text == "one two STOP three"


async def test_stop_ids_count_and_are_hidden(stage: Stage) -> None:
    (two,) = stage.ids(" two")
    async with stage.serve() as live:
        stage.say(stage.script("one two three"))
        (answer,) = await thrice(live, {"text": "x"} | sampling(stop_token_ids=[two]))
        assert (answer.text, answer.meta_info.finish_reason) == ("one", Stopped(two))
        assert answer.output_ids == stage.ids("one two")
        (answer,) = await thrice(live, {"text": "x"} | sampling(stop_token_ids=[two], no_stop_trim=True))
        assert answer.text == "one two"


async def test_special_tokens_are_shown_where_they_are_asked_for(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(Script(token_ids=[*stage.ids("one"), stage.id_of("<|im_start|>"), *stage.ids("two"), stage.eos]))
        texts = {}
        for skip in (True, False):
            for trim in (True, False):
                wishes = sampling(skip_special_tokens=skip, no_stop_trim=not trim)
                (answer,) = await thrice(live, {"text": "x"} | wishes)
                texts[skip, trim] = answer.text
        assert texts[True, True] == texts[True, False] == "onetwo"
        assert texts[False, True] == "one<|im_start|>two"
        assert texts[False, False] == "one<|im_start|>two<|im_end|>"


async def test_without_a_limit_the_rest_of_the_context_is_used(stage: Stage) -> None:
    async with stage.serve() as live:
        for limit, expected in ((None, live.engine.info.max_model_len - 1), (0, 0)):
            generated(await live.client.post(PATH, {"text": "x"} | sampling(max_new_tokens=limit)))
            assert live.engine.submitted[-1].sampling.max_tokens == expected
        generated(await live.client.post(PATH, {"text": "x"}))
        assert live.engine.submitted[-1].sampling.max_tokens == 128


async def test_nothing_but_the_prompt_may_be_asked_for(stage: Stage) -> None:
    async with stage.serve() as live:
        (answer,) = await thrice(
            live, {"text": "Once upon a", "return_logprob": True, "logprob_start_len": 0} | sampling(max_new_tokens=0)
        )
    assert (answer.text, answer.output_ids, answer.meta_info.finish_reason) == ("", [], Length(0))
    assert len(answer.meta_info.input_token_logprobs or []) == 3


@pytest.mark.parametrize("incremental", [True, False])
async def test_the_setting_decides_where_the_request_does_not(stage: Stage, incremental: bool) -> None:
    async with stage.serve(incremental_streaming_output=incremental) as live:
        events = await live.client.events(PATH, {"text": "x"})
        assert events[1]["text"] == (" there" if incremental else "Hello there")
        events = await live.client.events(PATH, {"text": "x", "incremental": not incremental})
        assert events[1]["text"] == ("Hello there" if incremental else " there")


async def test_sampling_reaches_the_engine_under_neutral_names(stage: Stage) -> None:
    params = {
        "max_new_tokens": 5,
        "min_new_tokens": 2,
        "temperature": 1e-9,
        "top_p": 0.5,
        "top_k": -1,
        "min_p": 0.1,
        "frequency_penalty": -1.0,
        "presence_penalty": 2.0,
        "repetition_penalty": 1.5,
        "ignore_eos": True,
        "stop_token_ids": [7],
        "logit_bias": {"9": -100.0},
        "sampling_seed": -5,
    }
    async with stage.serve() as live:
        generated(await live.client.post(PATH, {"text": "x", "sampling_params": params, "priority": -3}))
        (request,) = live.engine.submitted
    asked = request.sampling
    assert request.priority == -3
    assert (asked.max_tokens, asked.min_tokens, asked.temperature, asked.top_p) == (5, 2, 0.0, 0.5)
    assert (asked.top_k, asked.min_p, asked.frequency_penalty, asked.presence_penalty) == (0, 0.1, -1.0, 2.0)
    assert (asked.repetition_penalty, asked.ignore_eos, asked.seed) == (1.5, True, -5)
    assert (asked.stop_token_ids, asked.logit_bias) == ((7,), {9: -100.0})
