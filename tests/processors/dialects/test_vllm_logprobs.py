import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import PromptLogprobs
from processors.delta import Logprobs
from processors.dialects.positions import Shown
from processors.dialects.vllm_logprobs import RankedLogprobs
from tests.processors.answers import Answer, answers, logprobs_of
from tests.processors.dialects.joining import ranked_object, ranked_prompt
from tests.processors.dialects.scenes import prompt_of
from tests.processors.dialects.vocabularies import EMPTY, VOCABULARY
from tests.processors.strategies import cuts
from tests.sse import strict_json

ANSWERS = answers(vocabulary=VOCABULARY.size, top_k=5, chosen=2)
SHOWN = st.builds(Shown, st.sampled_from([0, 1, 5]), st.sampled_from([(), (8, EMPTY)]))


def read(objects: list[bytes]) -> list[Any]:
    return [strict_json(each) for each in objects]


@given(ANSWERS, SHOWN)
def test_law_5_the_token_comes_first_and_then_what_was_asked_for(answer: Answer, shown: Shown) -> None:
    """Keys are distinct (the reader refuses others), the order is part of the form."""
    ids = [token.id for token in answer.tokens]
    objects = read(RankedLogprobs(VOCABULARY, shown).output(ids, logprobs_of(answer, answer.tokens)))
    expected = [ranked_object(token, shown.top_k, shown.chosen) for token in answer.tokens]
    assert [list(each.items()) for each in objects] == [list(each.items()) for each in expected]


@given(ANSWERS, st.sampled_from([0, 2]), st.data())
def test_law_1_pieces_of_a_prompt_join_to_the_whole(answer: Answer, top_k: int, data: st.DataObject) -> None:
    renderer = RankedLogprobs(VOCABULARY, Shown(top_k))
    pieces = prompt_of(answer).pieces(data.draw(cuts(answer.tokens, empty_runs=False)))
    assert read([each for piece in pieces for each in renderer.prompt(piece)]) == ranked_prompt(answer.tokens, top_k)


def test_the_shape_of_vllm() -> None:
    """The recorded form: keys are ids as strings, the prompt's token first, null for the first position."""
    piece = PromptLogprobs(
        start=0,
        token_ids=[ord("a"), ord("b")],
        values=[None, -11.75],
        ranks=[0, 3121],
        top_k=1,
        top_ids=[ord("-")],
        top_values=[-0.5],
    )
    assert read(RankedLogprobs(VOCABULARY, Shown(1)).prompt(piece)) == [
        None,
        {
            "98": {"logprob": -11.75, "rank": 3121, "decoded_token": "b"},
            "45": {"logprob": -0.5, "rank": 1, "decoded_token": "-"},
        },
    ]


@pytest.mark.parametrize("start", [0, 5])
def test_the_first_position_is_null_wherever_a_prompt_was_asked_from(start: int) -> None:
    piece = PromptLogprobs(start=start, token_ids=[1, 2], values=[None, -1.0], ranks=[0, 1])
    first, second = read(RankedLogprobs(VOCABULARY, Shown(0)).prompt(piece))
    assert first is None
    assert list(second) == ["2"]


def test_unknown_ranks_are_null_and_minus_infinity_is_the_floor() -> None:
    logprobs = Logprobs([-math.inf], [0], 0, [], [], 2, [-math.inf, -2.0], [0, 17])
    (entry,) = read(RankedLogprobs(VOCABULARY, Shown(0, (5, 6))).output([7], logprobs))
    assert {key: (member["logprob"], member["rank"]) for key, member in entry.items()} == {
        "7": (-9999.0, None),
        "5": (-9999.0, None),
        "6": (-2.0, 17),
    }


def test_without_a_vocabulary_no_text_is_invented() -> None:
    logprobs = Logprobs([-1.0], [1], 0, [], [], 0, [], [])
    (entry,) = read(RankedLogprobs(None, Shown(0)).output([10**6], logprobs))
    assert entry == {"1000000": {"logprob": -1.0, "rank": 1, "decoded_token": None}}
