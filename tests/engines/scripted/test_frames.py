"""What frames hold besides plain tokens."""

import msgspec

from engines.protocol import (
    BatchEmbeddingOut,
    BatchStrOut,
    BatchTokenOut,
    Finish,
    FinishKind,
    Frame,
    LogprobParams,
    PromptLogprobs,
)
from engines.scripted.script import Script
from engines.scripted.values import ListedValues
from tests.engines.contract import check_prompt
from tests.engines.scripted.stepped import OPTIONS, SteppedEngine

TOKENS = [1, 2, 3]


def token_frame(stepped: SteppedEngine) -> BatchTokenOut:
    (frame,) = stepped.engine.step()
    assert isinstance(frame, BatchTokenOut)
    return frame


async def test_rows_with_and_without_logprobs_share_a_frame() -> None:
    values = ListedValues([{1: -0.25, 8: -1.0, 9: -2.0}])
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, values=values)] * 4)
    stepped.submit("none")
    stepped.submit("own", logprobs=LogprobParams())
    stepped.submit("top", logprobs=LogprobParams(top_k=2))
    stepped.submit("chosen", logprobs=LogprobParams(token_ids=(9, 1)))
    logprobs = token_frame(stepped).logprobs
    assert logprobs is not None
    assert logprobs.counts == [0, 1, 1, 1]
    assert logprobs.values == [-0.25] * 3
    assert logprobs.ranks == [1] * 3
    assert logprobs.top_counts == [0, 0, 2, 0]
    assert (logprobs.top_ids, logprobs.top_values) == ([1, 8], [-0.25, -1.0])
    assert logprobs.chosen_counts == [0, 0, 0, 2]
    assert (logprobs.chosen_values, logprobs.chosen_ranks) == ([-2.0, -0.25], [3, 1])


async def test_columns_that_nobody_asked_for_are_empty() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS)])
    stepped.submit("a", logprobs=LogprobParams())
    frame = token_frame(stepped)
    assert frame.logprobs is not None
    assert frame.logprobs.top_counts == frame.logprobs.chosen_counts == []
    assert frame.accepted_draft_tokens == frame.verify_steps == frame.segments == []
    assert not any([frame.hidden_states, frame.multi_ids, frame.extra_info, frame.prompt_logprobs])


async def test_everything_else_is_passed_through() -> None:
    script = Script(
        token_ids=TOKENS,
        grouping=[2, 1],
        cached_tokens=3,
        hidden_states=[[0.1], [0.2], [0.3]],
        multi_ids=[[4, 5], [6, 7], [8, 9]],
        extra_info={0: {"step": 0}, 1: {"step": 1}, 2: {"step": 2}},
        speculative=True,
    )
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS), script, script])
    stepped.submit("plain")
    stepped.submit("full", return_hidden_states=True, continues=2)
    stepped.submit("without hidden states")
    frame = token_frame(stepped)
    assert frame.cached_tokens == [0, 3, 3]
    assert frame.hidden_states == {1: [[0.1], [0.2]]}
    assert frame.multi_ids == {1: [[4, 5], [6, 7]], 2: [[4, 5], [6, 7]]}
    assert frame.extra_info == {1: {"step": 1}, 2: {"step": 1}}
    assert frame.accepted_draft_tokens == [0, 1, 1]
    assert frame.verify_steps == [0, 1, 1]
    assert frame.segments == [0, 2, 0]
    frame = token_frame(stepped)
    assert frame.hidden_states == {1: [[0.3]]}
    assert frame.accepted_draft_tokens == [0, 1, 1]
    assert frame.verify_steps == [0, 2, 2]


async def test_texts_embeddings_and_tokens_have_frames_of_their_own() -> None:
    stop = Finish(FinishKind.STOP, matched="!")
    stepped = await SteppedEngine.start(
        [
            Script(embedding=[0.5, -0.5]),
            Script(token_ids=TOKENS, texts=["a", "b", "!"], grouping=[2], finish=stop),
            Script(token_ids=TOKENS),
            Script(token_ids=[1, 2], texts=["x", "y"], cycle=True, grouping=[3]),
        ]
    )
    for request_id in ("vector", "text", "tokens", "cycled text"):
        stepped.submit(request_id)
    tokens, texts, embeddings = stepped.engine.step()
    assert tokens.request_ids == ["tokens"]
    assert not isinstance(tokens, BatchStrOut)
    assert isinstance(texts, BatchStrOut)
    assert (texts.request_ids, texts.texts) == (["text", "cycled text"], ["ab", "xyx"])
    assert texts.token_ids == [1, 2, 1, 2, 1]
    assert isinstance(embeddings, BatchEmbeddingOut)
    assert (embeddings.request_ids, embeddings.embeddings) == (["vector"], [[0.5, -0.5]])
    assert embeddings.finishes == [Finish(FinishKind.STOP)]
    _, texts = stepped.engine.step()
    assert isinstance(texts, BatchStrOut)
    assert texts.texts == ["!", "yxy"]
    assert texts.finishes == [stop, None]


async def test_rows_are_spread_over_frames() -> None:
    stepped = await SteppedEngine.start(options=msgspec.structs.replace(OPTIONS, rows_per_frame=2))
    for request_id in "abc":
        stepped.submit(request_id)
    frames = stepped.engine.step()
    assert [frame.request_ids for frame in frames] == [["a", "b"], ["c"]]
    assert [frame.step for frame in frames] == [1, 1]


async def test_finish_apart_is_a_row_without_tokens() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, grouping=[3], finish_apart=True)])
    stepped.submit("a")
    stepped.run()
    rows = stepped.recorder.rows["a"]
    assert [(row.token_ids, row.finish) for row in rows] == [(TOKENS, None), ([], Finish(FinishKind.STOP))]


async def test_prompt_pieces_come_first_and_the_last_with_the_first_tokens() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, grouping=[2])])
    stepped.submit("a", logprobs=LogprobParams(top_k=2, prompt_start=10), prompt=600)
    stepped.run()
    rows = stepped.recorder.rows["a"]
    assert [row.prompt and len(row.prompt.token_ids) for row in rows] == [256, 256, 78, None]
    assert [row.token_ids for row in rows] == [[], [], [1, 2], [3]]
    check_prompt(stepped.answer("a"), list(range(1, 601)), 10, top_k=2)


async def test_prompt_values_are_the_dictated_ones() -> None:
    values = ListedValues([{1: -9.0}], prompt=[{}, {2: -0.5, 7: -1.0}, {3: -0.25, 7: -0.125}])
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, values=values)])
    stepped.submit("a", logprobs=LogprobParams(top_k=1, token_ids=(7,), prompt_start=0), prompt=3)
    stepped.run()
    assert stepped.answer("a").prompt == [
        PromptLogprobs(
            start=0,
            token_ids=[1, 2, 3],
            values=[None, -0.5, -0.25],
            ranks=[0, 1, 2],
            top_k=1,
            top_ids=[2, 7],
            top_values=[-0.5, -0.125],
            chosen_values=[-1.0, -0.125],
            chosen_ranks=[2, 1],
        )
    ]


async def test_prompt_start_beyond_the_prompt_gives_no_piece() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS)])
    stepped.submit("a", logprobs=LogprobParams(prompt_start=4), prompt=4)
    stepped.run()
    assert stepped.answer("a").prompt == []
    assert stepped.answer("a").token_ids == TOKENS


async def test_frames_travel_as_messages() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS), Script(token_ids=TOKENS, texts=["a", "b", "c"])])
    stepped.submit("a", logprobs=LogprobParams(top_k=3, prompt_start=0))
    stepped.submit("b")
    stepped.run()
    for frame in stepped.recorder.frames:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame) == frame
