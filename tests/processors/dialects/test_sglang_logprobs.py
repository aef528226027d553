import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import PromptLogprobs
from processors.delta import Logprobs
from processors.dialects.sglang_logprobs import TupleColumns, TupleLogprobs
from processors.limits import WHOLE_VOCABULARY
from tests.processors.answers import Answer, Token, answers, logprobs_of
from tests.processors.dialects.joining import best, tuple_of
from tests.processors.dialects.scenes import prompt_of
from tests.processors.dialects.vocabularies import EMPTY, VOCABULARY
from tests.processors.strategies import cuts
from tests.sse import strict_json

CHOSEN = (8, EMPTY)
ANSWERS = answers(vocabulary=VOCABULARY.size, top_k=5, chosen=2)
TOP_K = st.sampled_from([0, 1, 5, WHOLE_VOCABULARY])


def read(columns: TupleColumns, side: str = "output", *, chosen: bool = True) -> Any:
    return strict_json(b"{" + columns.json(side, with_chosen=chosen)[1:] + b"}")


def renderer(top_k: int, chosen: tuple[int, ...] = CHOSEN, *, text: bool = True) -> TupleLogprobs:
    return TupleLogprobs(VOCABULARY, top_k=top_k, chosen=chosen, with_text=text)


def output(answer: Answer, tokens: list[Token], rendering: TupleLogprobs) -> TupleColumns:
    return rendering.output([token.id for token in tokens], logprobs_of(answer, tokens))


@given(ANSWERS, TOP_K)
def test_law_5_lists_hold_the_k_best_and_the_chosen_ids_as_they_were_asked_for(answer: Answer, top_k: int) -> None:
    """The sampled token never joins them; without alternatives the column is empty."""
    columns = read(output(answer, answer.tokens, renderer(top_k)))
    assert columns["output_token_logprobs"] == [tuple_of(token.id, token.value) for token in answer.tokens]
    tops = [[tuple_of(*pair) for pair in best(token, top_k)] for token in answer.tokens]
    assert columns["output_top_logprobs"] == (tops if top_k else [])
    assert columns["output_token_ids_logprobs"] == [
        [tuple_of(token_id, value) for token_id, (value, _) in zip(CHOSEN, token.chosen, strict=True)]
        for token in answer.tokens
    ]


@given(ANSWERS, TOP_K, st.data())
def test_law_1_runs_and_pieces_join_to_the_whole(answer: Answer, top_k: int, data: st.DataObject) -> None:
    rendering = renderer(top_k)
    joined = TupleColumns()
    for run in data.draw(cuts(answer.tokens)):
        joined.extend(output(answer, run, rendering))
    assert read(joined) == read(output(answer, answer.tokens, rendering))
    prompt = prompt_of(answer)
    inputs = TupleColumns()
    for piece in prompt.pieces(data.draw(cuts(answer.tokens, empty_runs=False))):
        inputs.extend(rendering.prompt(piece))
    assert read(inputs) == read(rendering.prompt(prompt.piece(0, answer.tokens)))


@pytest.mark.parametrize("start", [0, 3])
def test_the_first_position_is_null_wherever_a_prompt_was_asked_from(start: int) -> None:
    piece = PromptLogprobs(
        start=start,
        token_ids=[ord("a"), ord("b")],
        values=[None, -1.0],
        ranks=[0, 1],
        top_k=1,
        top_ids=[ord("c")],
        top_values=[-0.5],
        chosen_values=[-3.0, -math.inf],
        chosen_ranks=[2, 0],
    )
    assert read(renderer(1).prompt(piece), "input") == {
        "input_token_logprobs": [[None, ord("a"), "a"], [-1.0, ord("b"), "b"]],
        "input_top_logprobs": [None, [[-0.5, ord("c"), "c"]]],
        "input_token_ids_logprobs": [None, [[-3.0, 8, "\b"], [-9999.0, EMPTY, ""]]],
    }


def test_texts_are_null_unless_they_were_asked_for_and_known() -> None:
    logprobs = Logprobs([-math.inf], [0], 1, [5], [-0.5], 0, [], [])
    for rendering in (renderer(1, (), text=False), TupleLogprobs(None, top_k=1, with_text=True)):
        assert read(rendering.output([7], logprobs), chosen=False) == {
            "output_token_logprobs": [[-9999.0, 7, None]],
            "output_top_logprobs": [[[-0.5, 5, None]]],
        }
