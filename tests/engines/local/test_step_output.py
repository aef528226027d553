from engines.local.logprobs import PositionLogprobs
from engines.local.step_output import StepOutput, build_frame
from engines.protocol import Finish, FinishKind, PromptLogprobs, TokenLogprobs


def test_rows_become_columns() -> None:
    prompt = PromptLogprobs(start=2, token_ids=[4], values=[None], ranks=[0])
    rows = [
        StepOutput(b"a", "plain", 3, 1, 0, token=7),
        StepOutput(b"a", "scored", 3, prompt=prompt),
        StepOutput(b"a", "two", 4, 2, 1, token=8, logprobs=PositionLogprobs(-0.5, 2, [5, 8], [-0.1, -0.5])),
        StepOutput(b"a", "refused", 5, finish=Finish(FinishKind.ERROR, code="overloaded")),
        StepOutput(b"a", "chosen", 6, 9, logprobs=PositionLogprobs(-1.0, 4, [], [], [-3.0], [6]), token=1),
    ]
    frame = build_frame(rows, engine_id="e", step=4, running=3, waiting=2)
    assert frame.request_ids == ["plain", "scored", "two", "refused", "chosen"]
    assert (frame.engine_id, frame.step, frame.running, frame.waiting) == ("e", 4, 3, 2)
    assert (frame.token_counts, frame.token_ids) == ([1, 0, 1, 0, 1], [7, 8, 1])
    assert (frame.prompt_tokens, frame.completion_tokens, frame.cached_tokens) == (
        [3, 3, 4, 5, 6],
        [1, 0, 2, 0, 9],
        [0, 0, 1, 0, 0],
    )
    assert frame.logprobs == TokenLogprobs(
        counts=[0, 0, 1, 0, 1],
        values=[-0.5, -1.0],
        ranks=[2, 4],
        top_counts=[0, 0, 2, 0, 0],
        top_ids=[5, 8],
        top_values=[-0.1, -0.5],
        chosen_counts=[0, 0, 0, 0, 1],
        chosen_values=[-3.0],
        chosen_ranks=[6],
    )
    assert frame.prompt_logprobs == {1: prompt}


def test_without_logprobs_there_are_no_columns_for_them() -> None:
    assert build_frame([], engine_id="e", step=0, running=0, waiting=0).logprobs is None
