"""However tokens are grouped into frames and rows into them, the joined rows are the same."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.protocol import LogprobParams
from engines.scripted.script import Script
from engines.scripted.values import ListedValues, ZipfValues
from tests.engines.contract import check_logprobs, check_rows
from tests.engines.recorder import Answer
from tests.engines.scripted.stepped import OPTIONS, SteppedEngine

groupings = st.lists(st.integers(0, 7), max_size=6).filter(lambda counts: not counts or max(counts) > 0)
values = st.builds(ZipfValues, seed=st.integers(0, 5)) | st.just(ListedValues([{1: -0.5, 2: -0.5}, {3: -2.0}]))
scripts = st.builds(
    Script,
    token_ids=st.lists(st.integers(0, 499), min_size=1, max_size=20),
    cycle=st.booleans(),
    finish_apart=st.booleans(),
    values=values,
)
wishes = st.none() | st.builds(
    LogprobParams,
    top_k=st.integers(0, 5),
    token_ids=st.lists(st.integers(0, 499), max_size=3, unique=True).map(tuple),
    prompt_start=st.none() | st.integers(0, 700),
)


async def answers(
    asked: list[tuple[Script, LogprobParams | None]], grouping: list[list[int]], rows_per_frame: int | None
) -> list[Answer]:
    grouped = [
        msgspec.structs.replace(script, grouping=counts) for (script, _), counts in zip(asked, grouping, strict=True)
    ]
    options = msgspec.structs.replace(OPTIONS, rows_per_frame=rows_per_frame)
    stepped = await SteppedEngine.start(grouped, options)
    for number, (_, wished) in enumerate(asked):
        stepped.submit(str(number), 30, wished, prompt=600)
    stepped.run()
    check_rows(stepped.recorder)
    assert all(len(frame.request_ids) <= (rows_per_frame or len(asked)) for frame in stepped.recorder.frames)
    return [stepped.answer(str(number)) for number in range(len(asked))]


@settings(deadline=None, max_examples=60)
@given(asked=st.lists(st.tuples(scripts, wishes), min_size=1, max_size=4), data=st.data())
async def test_any_grouping_gives_the_same_answer(
    asked: list[tuple[Script, LogprobParams | None]], data: st.DataObject
) -> None:
    plain = await answers(asked, [[]] * len(asked), None)
    grouping = data.draw(st.lists(groupings, min_size=len(asked), max_size=len(asked)))
    rows_per_frame = data.draw(st.none() | st.integers(1, 3))
    assert await answers(asked, grouping, rows_per_frame) == plain
    for answer, (_, wished) in zip(plain, asked, strict=True):
        assert answer.finish is not None
        if wished is not None:
            check_logprobs(answer, wished.top_k, wished.token_ids)
