import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.dialects.foreign_logprobs import LogprobFormat, RankedBlock, TupleBlock
from processors.dialects.positions import Shown
from tests.processors.answers import Answer, Token, answers, deltas_of
from tests.processors.dialects.joining import ranked_object, ranked_prompt, shown
from tests.processors.dialects.scenes import prompt_of
from tests.processors.dialects.vocabularies import VOCABULARY
from tests.processors.strategies import cuts
from tests.sse import strict_json

ANSWERS = answers(vocabulary=VOCABULARY.size, top_k=2, chosen=2)


def with_logprobs(*values: float) -> Answer:
    return Answer(tokens=[Token(id=place, value=value) for place, value in enumerate(values)])


def members(block: bytes) -> Any:
    return strict_json(b"{" + block[1:] + b"}")


def totals(answer: Answer, runs: list[list[Token]], *, cumulative: bool = False) -> list[float]:
    """What `cumulative_logprob` says after each run."""
    block = RankedBlock(VOCABULARY, Shown(0), cumulative=cumulative)
    said = []
    for delta in deltas_of(answer, runs):
        block.extend(delta)
        said.append(members(block.json())["cumulative_logprob"])
    return said


@pytest.mark.parametrize(
    ("format_", "vllm", "sglang"),
    [("openai", False, False), ("vllm", True, False), ("sglang", False, True), ("both", True, True)],
)
def test_which_blocks_a_format_adds(format_: str, vllm: bool, sglang: bool) -> None:
    assert (LogprobFormat(format_).vllm, LogprobFormat(format_).sglang) == (vllm, sglang)


def test_the_cumulative_logprob_is_a_running_total_from_the_first_token_on() -> None:
    answer = with_logprobs(-1.0, -0.5, -math.inf, -0.25)
    expected = [-1.0, -1.5, -10000.5, -10000.75]
    single = [[token] for token in answer.tokens]
    assert totals(answer, single) == totals(answer, single, cumulative=True) == expected
    assert totals(answer, [answer.tokens[:2], [], answer.tokens[2:]]) == [-1.5, -1.5, -10000.75]


def test_law_1_the_total_does_not_depend_on_the_grouping() -> None:
    """Sums of sums differ in the last digits: (a + b) + c is not a + (b + c)."""
    answer = with_logprobs(-0.1, -0.2, -0.3, -0.7, -1e-9)
    places = range(1, len(answer.tokens))
    ends = {
        totals(answer, [answer.tokens[i:j] for i, j in itertools.pairwise([0, *chosen, len(answer.tokens)])])[-1]
        for count in range(len(answer.tokens))
        for chosen in itertools.combinations(places, count)
    }
    assert ends == {-0.1 - 0.2 - 0.3 - 0.7 - 1e-9}


@given(ANSWERS, st.booleans(), st.data())
def test_a_cumulative_block_keeps_what_it_has_shown(answer: Answer, with_prompt: bool, data: st.DataObject) -> None:
    answer = Answer(tokens=answer.tokens, top_k=2, chosen=2)
    prompt = prompt_of(answer)
    pieces = prompt.pieces([answer.tokens])
    runs = data.draw(cuts(answer.tokens))
    deltas = deltas_of(answer, runs, [pieces, *([[]] * (len(runs) - 1))])
    kept = RankedBlock(VOCABULARY, Shown(1), with_prompt=with_prompt, cumulative=True)
    fresh = RankedBlock(VOCABULARY, Shown(1), with_prompt=with_prompt)
    joined: list[Any] = []
    for delta in deltas:
        kept.extend(delta)
        fresh.extend(delta)
        joined += members(fresh.json())["output_logprobs"]
        assert members(kept.json())["output_logprobs"] == joined
        assert members(kept.json()).get("prompt_logprobs") == (ranked_prompt(answer.tokens, 1) if with_prompt else None)
    assert joined == [ranked_object(token, 1) for token in answer.tokens]
    *_, total = itertools.accumulate(shown(token.value) for token in answer.tokens)
    assert members(kept.json())["cumulative_logprob"] == total


def test_an_event_without_tokens_has_empty_lists() -> None:
    (delta,) = deltas_of(Answer(tokens=[]), [[]], [[]])
    assert members(TupleBlock(VOCABULARY, Shown(1)).json(delta)) == {
        "meta_info": {
            "input_token_logprobs": [],
            "input_top_logprobs": [],
            "output_token_logprobs": [],
            "output_top_logprobs": [],
        }
    }


def test_chosen_ids_stand_in_for_the_likeliest_ones() -> None:
    """Whether or not the engine sent some of these for another block."""
    token = Token(id=1, value=-1.0, alternatives=[(2, -0.5)], chosen=[(-3.0, 4), (-4.0, 5)])
    (delta,) = deltas_of(Answer(tokens=[token], top_k=1, chosen=2), [[token]], [[]])
    meta = members(TupleBlock(VOCABULARY, Shown(5, (7, 8))).json(delta))["meta_info"]
    assert meta["output_top_logprobs"] == []
    assert meta["output_token_ids_logprobs"] == [[[-3.0, 7, "\x07"], [-4.0, 8, "\b"]]]
