"""What engines send beside tokens reaches the client (rows S7, S9, S10, S11): law 11."""

from typing import Any

import pytest

from engines.scripted.script import Script
from tests.cases.stage import Stage
from tests.generate_wire import PATH, Length, Stopped, generated, latest, thrice

TEXT = "one two three four five"


def everything(stage: Stage, **more: Any) -> Script:
    """A script with all that an engine may say; the place of a token is in each of its values."""
    token_ids = stage.ids(TEXT)
    count = len(token_ids)
    return Script(
        token_ids=token_ids,
        hidden_states=[[float(place), -0.5] for place in range(count)],
        multi_ids=[[place, 1000 + place] for place in range(count)],
        extra_info={0: {"expert": 1}, count - 2: {"expert": 2, "why": "é\u2028"}},
        speculative=True,
        cached_tokens=1,
        **more,
    )


@pytest.mark.parametrize("grouping", [[], [3, 2], [1, 0, 4], [5]])
async def test_extras_come_with_their_tokens(stage: Stage, grouping: list[int]) -> None:
    steps = len([size for size in grouping if size]) or 5
    async with stage.serve() as live:
        stage.say(everything(stage, grouping=grouping))
        body = {"text": "Once upon", "return_hidden_states": True, "sampling_params": {"max_new_tokens": 5}}
        (answer,) = await thrice(live, body)
    meta = answer.meta_info
    assert (answer.text, meta.cached_tokens) == (TEXT, 1)
    assert meta.hidden_states == [[float(place), -0.5] for place in range(5)]
    assert meta.output_multi_ids == [[place, 1000 + place] for place in range(5)]
    assert meta.output_extra_info == {"expert": 2, "why": "é\u2028"}
    assert meta.spec_verify_ct == steps
    assert meta.spec_num_correct_drafts == 5 - steps
    assert meta.spec_accept_length == 5 / steps


async def test_a_stop_string_amid_a_speculative_step_cuts_the_lists(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(everything(stage, grouping=[5]))
        body = {"text": "x", "return_hidden_states": True, "sampling_params": {"stop": "three"}, "return_logprob": True}
        (answer,) = await thrice(live, body)
    meta = answer.meta_info
    assert (answer.text, meta.finish_reason) == ("one two ", Stopped("three"))
    assert len(answer.output_ids) == len(meta.hidden_states or []) == len(meta.output_multi_ids or []) == 3


async def test_hidden_states_are_only_shown_to_who_asks(stage: Stage) -> None:
    async with stage.serve() as live:
        stage.say(everything(stage))
        (answer,) = await thrice(live, {"text": "x"})
        assert answer.meta_info.hidden_states is None
        stage.say(stage.script(TEXT))
        (answer,) = await thrice(live, {"text": "x", "return_hidden_states": True})
        assert answer.meta_info.hidden_states == []
        for name in ("output_multi_ids", "output_extra_info", "spec_verify_ct", "spec_num_correct_drafts"):
            assert getattr(answer.meta_info, name) is None


async def test_raw_token_mode(stage: Stage) -> None:
    """Ids in, ids out: no text anywhere, everything else complete; what needs texts is refused by name."""
    prompt = stage.ids("Once upon")
    async with stage.serve(skip_tokenizer_init=True) as live:
        stage.say(everything(stage, grouping=[2]))
        body = {
            "input_ids": prompt,
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 2,
            "return_hidden_states": True,
            "sampling_params": {"max_new_tokens": 5},
        }
        (answer,) = await thrice(live, body | {"logprob_format": "vllm"})
        meta = answer.meta_info
        assert (answer.text, answer.output_ids) == ("", stage.ids(TEXT))
        assert meta.finish_reason == Length(5)
        assert [entry[1:] for entry in meta.input_token_logprobs or []] == [(token_id, None) for token_id in prompt]
        assert {value.decoded_token for entry in meta.output_logprobs or [] for value in entry.values()} == {None}
        assert len(meta.hidden_states or []) == 5
        batch = generated(await live.client.post(PATH, {"input_ids": [prompt, prompt]}))
        assert [entry.output_ids for entry in batch] == [stage.ids(TEXT)] * 2
        for fields, param in [
            ({"text": "Once"}, "text"),
            ({"input_ids": prompt, "sampling_params": {"stop": "x"}}, "sampling_params.stop"),
            ({"input_ids": prompt, "return_text_in_logprobs": True, "return_logprob": True}, "return_text_in_logprobs"),
            ({"input_ids": prompt, "logprob_format": "openai", "return_logprob": True}, "logprob_format"),
        ]:
            reply = await live.client.post(PATH, fields)
            assert (reply.status, reply.error.code, reply.error.param) == (400, "unsupported_feature", param)


async def test_raw_token_mode_still_ends_at_the_models_own_end(stage: Stage) -> None:
    async with stage.serve(skip_tokenizer_init=True) as live:
        stage.say(stage.script("one"))
        events = await live.client.events(PATH, {"input_ids": [1]})
        (answer,) = latest(events, 1)
        assert (answer.output_ids, answer.meta_info.finish_reason) == ([*stage.ids("one"), stage.eos], Stopped(None))


async def test_without_a_tokenizer_the_other_routes_say_so(stage: Stage) -> None:
    async with stage.serve(skip_tokenizer_init=True) as live:
        for path, body in [
            ("/v1/completions", {"prompt": [1]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
            ("/tokenize", {"prompt": "x"}),
            ("/detokenize", {"tokens": [1]}),
        ]:
            reply = await live.client.post(path, body)
            assert (reply.status, reply.error.code) == (400, "unsupported_feature")
            assert "/generate" in reply.error.message
        assert (await live.client.get("/tokenizer_info")).status == 400
        for path in ("/health", "/health_generate", "/ready", "/model_info", "/v1/models"):
            assert (await live.client.get(path)).status == 200, path
