import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import PromptLogprobs
from processors.dialects.positions import Shown, output_positions, prompt_positions
from processors.limits import WHOLE_VOCABULARY
from tests.processors.answers import Answer, answers, logprobs_of
from tests.processors.dialects.scenes import prompt_of
from tests.processors.strategies import cuts

ANSWERS = answers(vocabulary=290, top_k=5, chosen=2)
SHOWN = st.builds(Shown, st.sampled_from([0, 1, 4, 5, WHOLE_VOCABULARY]), st.sampled_from([(), (8, 3)]), st.booleans())
Rows = list[tuple[int, float, list[tuple[int, float]]]]


def rows_of(answer: Answer, shown: Shown) -> Rows:
    """All positions of an answer as they are shown."""
    positions = output_positions([token.id for token in answer.tokens], logprobs_of(answer, answer.tokens), shown)
    width = positions.width
    pairs = list(zip(positions.ids, map(float, positions.numbers), strict=True))
    assert len(pairs) == width * len(answer.tokens)
    return [
        (token_id, float(positions.values[place]), pairs[place * width : (place + 1) * width])
        for place, token_id in enumerate(positions.token_ids)
    ]


@given(ANSWERS, SHOWN)
def test_law_5_each_position_shows_its_own(answer: Answer, shown: Shown) -> None:
    for token, (token_id, value, others) in zip(answer.tokens, rows_of(answer, shown), strict=True):
        assert (token_id, value) == (token.id, max(token.value, -9999.0))
        expected = [(best_id, max(best, -9999.0)) for best_id, best in token.alternatives]
        if shown.chosen:
            expected = [
                (chosen_id, max(chosen, -9999.0))
                for chosen_id, (chosen, _) in zip(shown.chosen, token.chosen, strict=True)
            ]
            assert sorted(others) == sorted(expected)
            if not shown.ordered:
                assert others == expected
        elif shown.top_k == WHOLE_VOCABULARY:
            assert others == expected
        else:
            assert others == expected[: shown.top_k]


@given(ANSWERS)
def test_chosen_ids_come_most_likely_first_if_they_are_ordered(answer: Answer) -> None:
    for _, _, others in rows_of(answer, Shown(0, (8, 3), ordered=True)):
        values = [value for _, value in others]
        assert values == sorted(values, reverse=True)


@given(ANSWERS, SHOWN, st.data())
def test_law_1_pieces_of_a_prompt_join_to_its_positions(answer: Answer, shown: Shown, data: st.DataObject) -> None:
    prompt = prompt_of(answer)
    runs = data.draw(cuts(answer.tokens, empty_runs=False))
    ids: list[int] = []
    values: list[bytes] = []
    ranks: list[int] = []
    alternatives: list[tuple[int, bytes]] = []
    for number, piece in enumerate(prompt.pieces(runs)):
        absent, positions = prompt_positions(piece, shown)
        assert absent == (number == 0)
        ids += positions.token_ids
        values += positions.values
        ranks += positions.ranks
        alternatives += list(zip(positions.ids, positions.numbers, strict=True))
    _, whole = prompt_positions(prompt.pieces([answer.tokens])[0], shown)
    assert (ids, values, ranks) == (whole.token_ids, whole.values, whole.ranks)
    assert alternatives == list(zip(whole.ids, whole.numbers, strict=True))
    assert ids == [token.id for token in answer.tokens[1:]]


@pytest.mark.parametrize("start", [0, 7])
def test_the_first_position_has_no_value_wherever_it_is(start: int) -> None:
    piece = PromptLogprobs(
        start=start,
        token_ids=[4, 5],
        values=[None, -math.inf],
        ranks=[0, 9],
        top_k=1,
        top_ids=[6],
        top_values=[-0.5],
    )
    absent, positions = prompt_positions(piece, Shown(1))
    assert absent == 1
    assert (positions.token_ids, positions.values, positions.ranks) == ([5], [b"-9999.0"], [9])
    assert (positions.ids, positions.numbers) == ([6], [b"-0.5"])


def test_a_prompt_of_one_token_has_no_positions() -> None:
    piece = PromptLogprobs(start=0, token_ids=[4], values=[None], ranks=[0], top_k=3)
    for shown in (Shown(0), Shown(2), Shown(WHOLE_VOCABULARY), Shown(2, (1,))):
        absent, positions = prompt_positions(piece, shown)
        assert (absent, positions.token_ids, positions.ids) == (1, [], [])
