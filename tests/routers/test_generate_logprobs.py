"""Logprobs on /generate, each value held against the script's own distributions. Law 2 holds in all of them."""

from typing import Any

import pytest

from engines.scripted.script import Script
from engines.scripted.values import Distribution, ListedValues
from tests.cases.stage import Stage
from tests.generate_wire import PATH, LogprobTuple, Ranked, generated, thrice

PROMPT = "Once upon a 🙂 time"
TEXT = "So 🙂 it is"
FLOOR = -9999.0
RETURN: dict[str, Any] = {"return_logprob": True, "sampling_params": {"max_new_tokens": 16}}


class Truth:
    """What the script says of each position."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.script = Script(token_ids=[*stage.ids(TEXT), stage.eos], grouping=[2, 0, 1])
        self._size = stage.tokenizer.get_vocab_size()
        self.prompt = stage.ids(PROMPT)
        self.output = self.script.token_ids

    def at_prompt(self, place: int) -> Distribution:
        return self.script.values.at(place, self.prompt[place], self._size, prompt=True)

    def at_output(self, place: int) -> Distribution:
        return self.script.values.at(place, self.output[place], self._size)

    def text(self, token_id: int) -> str:
        return "<|im_end|>" if token_id == self._stage.eos else self._stage.bytes_of(token_id).decode(errors="replace")


@pytest.fixture
def truth(stage: Stage) -> Truth:
    return Truth(stage)


def bare(distribution: Distribution, token_id: int) -> LogprobTuple:
    return distribution.value(token_id), token_id, None


async def test_without_a_start_there_are_no_logprobs_of_the_prompt(stage: Stage, truth: Truth) -> None:
    async with stage.serve() as live:
        stage.say(truth.script)
        for fields in ({}, {"logprob_start_len": -1}, {"logprob_start_len": None}, {"top_logprobs_num": None}):
            (answer,) = await thrice(live, {"text": PROMPT} | RETURN | fields)
            meta = answer.meta_info
            places = range(len(truth.output))
            assert meta.output_token_logprobs == [bare(truth.at_output(place), truth.output[place]) for place in places]
            assert meta.output_top_logprobs == []
            assert meta.input_token_logprobs == []
            assert meta.input_top_logprobs == []
            assert meta.logprobs_mode == "raw_logprobs"


async def test_the_prompt_is_scored_from_the_start_on(stage: Stage, truth: Truth) -> None:
    """The first position that was asked for has no value, wherever it is; at the end of the prompt there is none."""
    count = len(truth.prompt)
    async with stage.serve() as live:
        stage.say(truth.script)
        for start in (0, 1, 3, count - 1, count):
            body = {"text": PROMPT, "logprob_start_len": start, "top_logprobs_num": 2, "token_ids_logprob": [9, 300]}
            (answer,) = await thrice(live, body | RETURN)
            meta = answer.meta_info
            scored = range(start + 1, count)
            lead: list[Any] = [(None, truth.prompt[start], None)] if start < count else []
            nulls = [None] * len(lead)
            assert meta.input_token_logprobs == [
                *lead, *(bare(truth.at_prompt(place), truth.prompt[place]) for place in scored)
            ]  # fmt: skip
            assert meta.input_top_logprobs == nulls + [
                [(value, token_id, None) for token_id, value in zip(*truth.at_prompt(place).top(2), strict=True)]
                for place in scored
            ]
            assert meta.input_token_ids_logprobs == nulls + [
                [bare(truth.at_prompt(place), token_id) for token_id in (9, 300)] for place in scored
            ]
        reply = await live.client.post(PATH, {"text": PROMPT, "logprob_start_len": count + 1} | RETURN)
        assert (reply.status, reply.error.param) == (400, "logprob_start_len")


async def test_a_prompt_of_many_pieces_comes_in_order(stage: Stage) -> None:
    """Pieces are of 256 positions; each event of an incremental stream brings its own, no position comes twice."""
    prompt = [place % 1000 for place in range(700)]
    body = {"input_ids": prompt, "logprob_start_len": 0, "logprob_format": "vllm"} | RETURN
    async with stage.serve() as live:
        (answer,) = await thrice(live, body)
        assert [token_id for _, token_id, _ in answer.meta_info.input_token_logprobs or []] == prompt
        assert len(answer.meta_info.prompt_logprobs or []) == 700
        events = await live.client.events(PATH, body | {"incremental": True})
        pieces = [len(event["meta_info"]["input_token_logprobs"]) for event in events]
        assert pieces == [256, 256, 188] + [0] * (len(events) - 3)
        assert [len(event["output_ids"]) for event in events[:3]] == [0, 0, 1]


@pytest.mark.parametrize("count", [0, 1, 5, 20])
async def test_law_5_the_best_ids_do_not_depend_on_how_many_are_asked_for(
    stage: Stage, truth: Truth, count: int
) -> None:
    body = {"text": PROMPT, "top_logprobs_num": count, "return_text_in_logprobs": True, **RETURN}
    async with stage.serve() as live:
        stage.say(truth.script)
        (answer,) = await thrice(live, body)
    for place, (value, token_id, text) in enumerate(answer.meta_info.output_token_logprobs or []):
        assert (value, text) == (truth.at_output(place).value(token_id), truth.text(token_id))
    expected = [
        [(value, token_id, truth.text(token_id)) for token_id, value in zip(*distribution.top(count), strict=True)]
        for distribution in map(truth.at_output, range(len(truth.output)))
    ]
    assert answer.meta_info.output_top_logprobs == (expected if count else [])


async def test_chosen_ids_come_in_the_order_they_were_asked_for(stage: Stage, truth: Truth) -> None:
    async with stage.serve() as live:
        stage.say(truth.script)
        for chosen in ([300, 9], [9], []):
            (answer,) = await thrice(live, {"text": PROMPT, "token_ids_logprob": chosen} | RETURN)
            expected = [
                [bare(truth.at_output(place), token_id) for token_id in chosen] for place in range(len(truth.output))
            ]
            assert answer.meta_info.output_token_ids_logprobs == (expected if chosen else None)


async def test_vllms_objects_stand_beside_the_tuples(stage: Stage, truth: Truth) -> None:
    body = {"text": PROMPT, "logprob_start_len": 0, "top_logprobs_num": 2, **RETURN}
    async with stage.serve() as live:
        stage.say(truth.script)
        (plain,) = await thrice(live, body)
        for name in ("vllm", "both"):
            (answer,) = await thrice(live, body | {"logprob_format": name})
            meta = answer.meta_info
            assert meta.input_token_logprobs == plain.meta_info.input_token_logprobs
            assert meta.output_top_logprobs == plain.meta_info.output_top_logprobs
            outputs = [ranked(truth, truth.at_output(place), at) for place, at in enumerate(truth.output)]
            inputs = [ranked(truth, truth.at_prompt(place), at) for place, at in enumerate(truth.prompt)]
            assert meta.output_logprobs == outputs
            assert meta.prompt_logprobs == [None, *inputs[1:]]
            total = sum(truth.at_output(place).value(at) for place, at in enumerate(truth.output))
            assert meta.cumulative_logprob == pytest.approx(total, abs=1e-12)
        for name in ("sglang", "openai"):
            (answer,) = await thrice(live, body | {"logprob_format": name})
            assert answer.meta_info.output_logprobs is None
            assert answer.meta_info.cumulative_logprob is None


def ranked(truth: Truth, distribution: Distribution, here: int) -> dict[str, Ranked]:
    """vLLM's object of a position: what stands there, then the two best."""
    return {
        str(token_id): Ranked(distribution.value(token_id), distribution.rank(token_id), truth.text(token_id))
        for token_id in (here, *distribution.top(2)[0])
    }


async def test_chats_entries_stand_beside_the_tuples(stage: Stage, truth: Truth) -> None:
    async with stage.serve() as live:
        stage.say(truth.script)
        body = {"text": PROMPT, "top_logprobs_num": 1, "logprob_format": "openai"} | RETURN
        (answer,) = await thrice(live, body)
    assert answer.meta_info.logprobs is not None
    entries = answer.meta_info.logprobs["content"]
    assert [entry["logprob"] for entry in entries] == [
        value for value, _, _ in answer.meta_info.output_token_logprobs or []
    ]
    assert b"".join(bytes(entry["bytes"]) for entry in entries[:-1]).decode() == TEXT
    assert [len(entry["top_logprobs"]) for entry in entries] == [1] * len(entries)


async def test_values_that_are_no_json_numbers_are_floored(stage: Stage) -> None:
    a, b = stage.ids(" a")[0], stage.ids(" b")[0]
    async with stage.serve() as live:
        stage.say(Script(token_ids=[a], values=ListedValues([{b: -0.5}])))
        body = {"input_ids": [a, a], "logprob_start_len": 0, "top_logprobs_num": 2, **RETURN}
        (answer,) = await thrice(live, body | {"logprob_format": "both"})
        meta = answer.meta_info
        assert meta.output_token_logprobs == [(FLOOR, a, None)]
        assert meta.input_token_logprobs == [(None, a, None), (FLOOR, a, None)]
        (best,) = meta.output_top_logprobs or []
        assert [value for value, _, _ in best or []] == [-0.5, FLOOR]
        assert meta.cumulative_logprob == FLOOR


@pytest.mark.parametrize("setting", ["raw_logprobs", "processed_logprobs"])
async def test_the_mode_is_told_and_may_be_asked_for(stage: Stage, setting: str) -> None:
    async with stage.serve(logprobs_mode=setting) as live:
        for field in ("logprobs_mode", "sampling_logprobs_mode"):
            for asked in (None, "raw_logprobs", "processed_logprobs"):
                (answer,) = generated(await live.client.post(PATH, {"text": "x", field: asked} | RETURN))
                assert answer.meta_info.logprobs_mode == (asked or setting)
                wishes = live.engine.submitted[-1].logprobs
                assert wishes is not None
                assert wishes.mode == (asked or setting)


async def test_the_whole_vocabulary_where_the_operator_allows_it(stage: Stage, truth: Truth) -> None:
    async with stage.serve(max_logprobs=-1) as live:
        stage.say(Script(token_ids=truth.output[:1]))
        (answer,) = generated(await live.client.post(PATH, {"text": "x", "top_logprobs_num": -1} | RETURN))
        ((*best,),) = [entry or [] for entry in answer.meta_info.output_top_logprobs or []]
        assert {token_id for _, token_id, _ in best} == set(range(stage.tokenizer.get_vocab_size()))
