import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import EngineFault, InvalidLogits
from engines.protocol import Finish, FinishKind, LogprobParams, PromptLogprobs
from processors.completeness import LogprobCompleteness
from processors.delta import Logprobs
from tests.processors.strategies import cuts

STOP = Finish(FinishKind.STOP)
PROMPT = [10, 11, 12, 13, 14]
WISHES = LogprobParams(top_k=2, token_ids=(5,), prompt_start=1)


def entries(count: int, *, top_k: int = 2, chosen: int = 1) -> Logprobs:
    return Logprobs(
        values=[-1.0] * count,
        ranks=[1] * count,
        top_k=top_k,
        top_ids=list(range(top_k)) * count,
        top_values=[-1.0] * top_k * count,
        chosen=chosen,
        chosen_values=[-1.0] * chosen * count,
        chosen_ranks=[1] * chosen * count,
    )


def piece(start: int, stop: int, *, first: int = 1) -> PromptLogprobs:
    """Positions start .. stop; the one that the request asked for first has no value."""
    valued = sum(position != first for position in range(start, stop))
    return PromptLogprobs(
        start=start,
        token_ids=PROMPT[start:stop],
        values=[None if position == first else -1.0 for position in range(start, stop)],
        ranks=[0 if position == first else 1 for position in range(start, stop)],
        top_k=2,
        top_ids=[0, 1] * valued,
        top_values=[-1.0, -2.0] * valued,
        chosen_values=[-1.0] * valued,
        chosen_ranks=[1] * valued,
    )


def checker(wishes: LogprobParams | None = WISHES) -> LogprobCompleteness:
    return LogprobCompleteness(wishes, len(PROMPT))


def test_what_was_asked_for_passes() -> None:
    logprobs = entries(2)
    assert checker().of_tokens([1, 2], logprobs) is logprobs
    assert checker().of_tokens([], None) is None


@pytest.mark.parametrize(
    "logprobs", [None, entries(1), entries(3), entries(2, top_k=1), entries(2, top_k=3), entries(2, chosen=0)]
)
def test_law_3_anything_less_or_more_is_a_fault_of_the_engine(logprobs: Logprobs | None) -> None:
    with pytest.raises(EngineFault):
        checker().of_tokens([1, 2], logprobs)


def test_logprobs_without_tokens_are_a_fault() -> None:
    with pytest.raises(EngineFault):
        checker().of_tokens([], entries(1))


def test_what_nobody_asked_for_is_dropped() -> None:
    assert checker(None).of_tokens([1], entries(1)) is None
    assert checker(None).of_prompt(piece(1, 5), STOP) is None
    assert checker(LogprobParams()).of_prompt(piece(1, 5), STOP) is None


@given(st.data())
def test_law_1_the_prompt_comes_in_any_pieces(data: st.DataObject) -> None:
    check = checker()
    runs = data.draw(cuts(range(1, 5), empty_runs=False))
    for run in runs:
        part = piece(run[0], run[-1] + 1)
        assert check.of_prompt(part, STOP if run is runs[-1] else None) is part


def test_a_prompt_whose_rest_is_missing_is_a_fault_at_the_finish() -> None:
    check = checker()
    check.of_prompt(piece(1, 3), None)
    with pytest.raises(EngineFault):
        check.of_prompt(None, STOP)


def test_a_prompt_may_be_incomplete_where_the_request_was_aborted() -> None:
    assert checker().of_prompt(None, Finish(FinishKind.ABORT)) is None


@pytest.mark.parametrize("second", [piece(2, 5), piece(4, 5), piece(1, 3)], ids=["doubled", "skipped", "again"])
def test_a_position_doubled_or_skipped_is_a_fault(second: PromptLogprobs) -> None:
    check = checker()
    check.of_prompt(piece(1, 3), None)
    with pytest.raises(EngineFault):
        check.of_prompt(second, None)


@pytest.mark.parametrize(
    "column", ["values", "ranks", "token_ids", "top_ids", "top_values", "chosen_values", "chosen_ranks"]
)
def test_a_column_that_is_too_short_is_a_fault(column: str) -> None:
    part = piece(1, 5)
    with pytest.raises(EngineFault):
        checker().of_prompt(msgspec.structs.replace(part, **{column: getattr(part, column)[:-1]}), None)


def test_a_value_is_absent_at_the_first_position_only() -> None:
    with pytest.raises(EngineFault):
        checker().of_prompt(msgspec.structs.replace(piece(1, 5), values=[-1.0, -1.0, -1.0, None]), None)
    with pytest.raises(EngineFault):
        checker().of_prompt(msgspec.structs.replace(piece(1, 5), values=[-1.0] * 4), None)


@pytest.mark.parametrize("column", ["values", "top_values", "chosen_values"])
def test_nan_in_the_prompt_is_invalid(column: str) -> None:
    part = piece(1, 5)
    values = getattr(part, column)
    with pytest.raises(InvalidLogits):
        checker().of_prompt(msgspec.structs.replace(part, **{column: [*values[:-1], math.nan]}), None)
