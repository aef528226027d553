from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.sampling import Sampler
from engines.local.sequence import PIECE_POSITIONS, Sequence
from engines.protocol import EngineRequest, Finish, FinishKind, LogprobParams, SamplingParams

EOS = frozenset({2, 3})


def sequence(prompt: list[int], **changes: Any) -> Sequence:
    fields: dict[str, Any] = {"max_tokens": 3, "stop_token_ids": (7, 3)} | changes
    params = SamplingParams(**fields)
    state = Sampler(50, torch.device("cpu")).start(params, prompt, [])
    return Sequence(b"", EngineRequest(id="x", prompt_token_ids=prompt, sampling=params), state, 0)


@pytest.mark.parametrize(
    ("token", "changes", "finish"),
    [
        (5, {}, None),
        (2, {}, Finish(FinishKind.STOP)),
        (3, {}, Finish(FinishKind.STOP)),
        (7, {}, Finish(FinishKind.STOP, matched=7)),
        (2, {"ignore_eos": True}, None),
        (3, {"ignore_eos": True}, Finish(FinishKind.STOP, matched=3)),
        (5, {"max_tokens": 1}, Finish(FinishKind.LENGTH)),
        (2, {"max_tokens": 1}, Finish(FinishKind.STOP)),
    ],
)
def test_the_end_has_its_reason(token: int, changes: dict[str, Any], finish: Finish | None) -> None:
    assert sequence([1], **changes).append(token, EOS, 100) == finish


def test_the_context_ends_it() -> None:
    long = sequence([1, 1, 1], max_tokens=9)
    assert long.append(5, EOS, 5) is None
    assert long.append(5, EOS, 5) == Finish(FinishKind.LENGTH)


@given(prompt=st.lists(st.integers(0, 9), min_size=1), output=st.lists(st.integers(0, 9)), data=st.data())
@settings(deadline=None)
def test_any_pieces_are_prompt_and_output_in_order(prompt: list[int], output: list[int], data: st.DataObject) -> None:
    whole = sequence(prompt, max_tokens=1000)
    whole.output_ids = output
    taken: list[int] = []
    while whole.pending:
        piece = whole.tokens(data.draw(st.integers(1, whole.pending)))
        taken += piece
        whole.computed += len(piece)
    assert taken == prompt + output


@given(
    length=st.integers(1, 1500),
    start=st.integers(0, 1500),
    wish=st.builds(LogprobParams, top_k=st.sampled_from([0, 20, 2000]), token_ids=st.sampled_from([(), (1,) * 130])),
    budget=st.integers(1, 3000),
)
@settings(deadline=None)
def test_every_asked_position_of_a_prompt_is_scored_once_within_the_budget(
    length: int, start: int, wish: LogprobParams, budget: int
) -> None:
    whole = sequence([1] * length)
    logprobs = msgspec.structs.replace(wish, prompt_start=min(start, length))
    whole.request = msgspec.structs.replace(whole.request, logprobs=logprobs)
    scored: list[int] = []
    while whole.pending:
        count = whole.affordable(budget)
        assert 1 <= count <= whole.pending
        assert count == 1 or whole.cost(count) <= budget
        assert len(whole.scored(count)) < PIECE_POSITIONS
        scored += whole.scored(count)
        whole.computed += count
    assert scored == list(range(min(start, length), length - 1))


def test_a_budget_is_used_up_where_nothing_is_scored() -> None:
    whole = sequence([1] * 50)
    assert [whole.affordable(budget) for budget in (1, 49, 50, 51)] == [1, 49, 50, 50]
    assert whole.cost(17) == 17
