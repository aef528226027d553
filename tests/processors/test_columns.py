import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import EngineFault, InvalidLogits
from engines.protocol import BatchTokenOut, Finish, FinishKind
from processors.columns import LogprobColumns, TokenColumns, check_columns, check_numbers
from processors.delta import Logprobs
from tests.processors.answers import answers, logprobs_of
from tests.processors.frames import (
    FrameRow,
    embedding_frame,
    logprob_columns,
    sampled_logprobs,
    text_frame,
    token_frame,
)

STOP = Finish(FinishKind.STOP)
ROWS = st.lists(answers(vocabulary=50, max_size=3), max_size=4)


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6))
def test_each_row_gets_its_own_tokens(rows: list[list[int]]) -> None:
    frame = token_frame([FrameRow(id=str(place), ids=ids) for place, ids in enumerate(rows)])
    check_columns(frame)
    columns = TokenColumns(frame)
    assert [columns.take(row) for row in range(len(rows))] == rows


def test_the_tokens_of_a_row_are_a_list_of_its_own() -> None:
    frame = token_frame([FrameRow(id="a", ids=[1, 2])])
    TokenColumns(frame).take(0).append(3)
    assert frame.token_ids == [1, 2]


@given(ROWS, st.data())
def test_each_row_gets_its_own_logprobs(rows: list[Any], data: st.DataObject) -> None:
    """Rows differ in length and width; some have none."""
    wanted: list[Logprobs | None] = [logprobs_of(row, row.tokens) if row.logprobs else None for row in rows]
    columns = LogprobColumns(logprob_columns(wanted))
    assert [columns.take(row) for row in range(len(rows))] == wanted


def test_an_empty_count_column_stands_for_zeros() -> None:
    rows = [FrameRow(id="a", finish=STOP), FrameRow(id="b")]
    frame = token_frame(rows, token_counts=[], cached_tokens=[], logprobs=logprob_columns([]))
    check_columns(frame)
    assert frame.logprobs is not None
    tokens, logprobs = TokenColumns(frame), LogprobColumns(frame.logprobs)
    assert [tokens.take(row) for row in range(2)] == [[], []]
    assert [logprobs.take(row) for row in range(2)] == [None, None]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("column", ["values", "top_values", "chosen_values"])
def test_nan_and_positive_infinity_are_no_logprobs(column: str, bad: float) -> None:
    good = Logprobs([-1.0, -2.0], [1, 1], 1, [1, 2], [-1.0, -2.0], 1, [-1.0, -2.0], [1, 1])
    spoilt = msgspec.structs.replace(good, **{column: [-math.inf, bad]})
    columns = LogprobColumns(logprob_columns([good, spoilt, good]))
    assert columns.take(0) == good
    with pytest.raises(InvalidLogits):
        columns.take(1)
    assert columns.take(2) == good


@given(st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=4), max_size=3))
def test_numbers_pass_exactly_if_none_is_nan_or_positive_infinity(columns: list[list[float]]) -> None:
    values = [min(value, 0.0) if value != math.inf else value for column in columns for value in column]
    if any(math.isnan(value) or value == math.inf for value in values):
        with pytest.raises(InvalidLogits):
            check_numbers(values)
    else:
        check_numbers(values)


def test_negative_infinity_is_a_logprob() -> None:
    columns = LogprobColumns(logprob_columns([sampled_logprobs([-math.inf, -1.0])]))
    taken = columns.take(0)
    assert taken is not None
    assert taken.values == [-math.inf, -1.0]


def two_rows() -> BatchTokenOut:
    logprobs = Logprobs([-1.0], [1], 2, [1, 2], [-1.0, -2.0], 1, [-3.0], [7])
    return token_frame(
        [FrameRow(id="a", ids=[1], logprobs=logprobs), FrameRow(id="b", ids=[2], logprobs=logprobs)],
        accepted_draft_tokens=[0, 0],
        verify_steps=[1, 1],
        segments=[0, 0],
    )


PER_ROW = ["finishes", "prompt_tokens", "completion_tokens", "token_counts", "cached_tokens", "segments"]
PER_ROW += ["accepted_draft_tokens", "verify_steps"]
COUNTS = ["counts", "top_counts", "chosen_counts"]
FLAT = ["values", "ranks", "top_ids", "top_values", "chosen_values", "chosen_ranks"]


@pytest.mark.parametrize("column", [*PER_ROW, "token_ids"])
@pytest.mark.parametrize("change", ["short", "long"])
def test_columns_that_contradict_each_other_are_refused(column: str, change: str) -> None:
    frame = two_rows()
    check_columns(frame)
    items = getattr(frame, column)
    setattr(frame, column, items[:-1] if change == "short" else [*items, items[-1]])
    with pytest.raises(EngineFault):
        check_columns(frame)


@pytest.mark.parametrize("column", [*COUNTS, *FLAT])
@pytest.mark.parametrize("change", ["short", "long"])
def test_logprob_columns_that_contradict_each_other_are_refused(column: str, change: str) -> None:
    frame = two_rows()
    assert frame.logprobs is not None
    items = getattr(frame.logprobs, column)
    setattr(frame.logprobs, column, items[:-1] if change == "short" else [*items, items[-1]])
    with pytest.raises(EngineFault):
        check_columns(frame)


def test_texts_and_embeddings_are_one_a_row() -> None:
    check_columns(text_frame([FrameRow(id="a", ids=[1], text="x")]))
    check_columns(embedding_frame([FrameRow(id="a")], [[1.0]]))
    with pytest.raises(EngineFault):
        check_columns(text_frame([FrameRow(id="a", ids=[1])], texts=[]))
    with pytest.raises(EngineFault):
        check_columns(embedding_frame([FrameRow(id="a")], []))
