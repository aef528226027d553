"""What a step brought one sequence, and how a step's rows become the columns of a frame."""

import time
from collections.abc import Sequence as Rows
from dataclasses import dataclass

from engines.local.logprobs import PositionLogprobs
from engines.protocol import BatchTokenOut, Finish, PromptLogprobs, TokenLogprobs


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One request's row: at most one token, logprobs of its prompt, the end if it is the last. Counts are totals."""

    owner: bytes
    request_id: str
    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    token: int | None = None
    logprobs: PositionLogprobs | None = None
    prompt: PromptLogprobs | None = None
    finish: Finish | None = None


def build_frame(rows: Rows[StepOutput], *, engine_id: str, step: int, running: int, waiting: int) -> BatchTokenOut:
    """Put rows into columns, stamped now."""
    return BatchTokenOut(
        engine_id=engine_id,
        timestamp=time.monotonic(),
        step=step,
        running=running,
        waiting=waiting,
        request_ids=[row.request_id for row in rows],
        finishes=[row.finish for row in rows],
        prompt_tokens=[row.prompt_tokens for row in rows],
        completion_tokens=[row.completion_tokens for row in rows],
        cached_tokens=[row.cached_tokens for row in rows],
        token_counts=[int(row.token is not None) for row in rows],
        token_ids=[row.token for row in rows if row.token is not None],
        logprobs=_columns([row.logprobs for row in rows]),
        prompt_logprobs={index: row.prompt for index, row in enumerate(rows) if row.prompt is not None},
    )


def _columns(rows: Rows[PositionLogprobs | None]) -> TokenLogprobs | None:
    """Columns of the rows' logprobs; None where no row has any."""
    given = [row for row in rows if row is not None]
    if not given:
        return None
    return TokenLogprobs(
        counts=[int(row is not None) for row in rows],
        values=[row.value for row in given],
        ranks=[row.rank for row in given],
        top_counts=[len(row.top_ids) if row else 0 for row in rows],
        top_ids=[id_ for row in given for id_ in row.top_ids],
        top_values=[value for row in given for value in row.top_values],
        chosen_counts=[len(row.chosen_values) if row else 0 for row in rows],
        chosen_values=[value for row in given for value in row.chosen_values],
        chosen_ranks=[rank for row in given for rank in row.chosen_ranks],
    )
