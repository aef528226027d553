"""Frames made row by row."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from engines.protocol import BatchEmbeddingOut, BatchStrOut, BatchTokenOut, Finish, PromptLogprobs, TokenLogprobs
from processors.delta import Logprobs


class FrameRow(msgspec.Struct, kw_only=True):
    """One row of a frame. `total`: the completion tokens that the engine claims, by default those of this row."""

    id: str
    ids: list[int] = []
    finish: Finish | None = None
    total: int | None = None
    cached: int = 0
    text: str = ""
    logprobs: Logprobs | None = None
    prompt: PromptLogprobs | None = None
    hidden_states: list[list[float]] = []
    multi_ids: list[list[int]] = []
    extra_info: dict[str, Any] = {}


def token_frame(rows: Sequence[FrameRow], **more: Any) -> BatchTokenOut:
    """The rows in columns; `more` are further fields of the frame, or others in their place."""
    return BatchTokenOut(**(_columns(rows) | more))


def text_frame(rows: Sequence[FrameRow], **more: Any) -> BatchStrOut:
    """The same with each row's text."""
    return BatchStrOut(**(_columns(rows) | {"texts": [row.text for row in rows]} | more))


def embedding_frame(rows: Sequence[FrameRow], embeddings: list[list[float]], **more: Any) -> BatchEmbeddingOut:
    """One vector a row."""
    fields: dict[str, Any] = {
        "engine_id": "e",
        "timestamp": 1.0,
        "request_ids": [row.id for row in rows],
        "finishes": [row.finish for row in rows],
        "prompt_tokens": [3] * len(rows),
        "extra_info": {place: row.extra_info for place, row in enumerate(rows) if row.extra_info},
        "embeddings": embeddings,
    }
    return BatchEmbeddingOut(**(fields | more))


def logprob_columns(rows: Sequence[Logprobs | None]) -> TokenLogprobs:
    """The columns of rows, None for a row without logprobs."""
    given = [row for row in rows if row is not None]
    flat = itertools.chain.from_iterable
    return TokenLogprobs(
        counts=[0 if row is None else len(row.values) for row in rows],
        values=list(flat(row.values for row in given)),
        ranks=list(flat(row.ranks for row in given)),
        top_counts=[0 if row is None else row.top_k for row in rows],
        top_ids=list(flat(row.top_ids for row in given)),
        top_values=list(flat(row.top_values for row in given)),
        chosen_counts=[0 if row is None else row.chosen for row in rows],
        chosen_values=list(flat(row.chosen_values for row in given)),
        chosen_ranks=list(flat(row.chosen_ranks for row in given)),
    )


def sampled_logprobs(values: Sequence[float]) -> Logprobs:
    """Entries of the sampled tokens alone."""
    return Logprobs(
        values=list(values),
        ranks=[1] * len(values),
        top_k=0,
        top_ids=[],
        top_values=[],
        chosen=0,
        chosen_values=[],
        chosen_ranks=[],
    )


def _columns(rows: Sequence[FrameRow]) -> dict[str, Any]:
    places = list(enumerate(rows))
    return {
        "engine_id": "e",
        "timestamp": 1.0,
        "request_ids": [row.id for row in rows],
        "finishes": [row.finish for row in rows],
        "prompt_tokens": [3] * len(rows),
        "token_counts": [len(row.ids) for row in rows],
        "token_ids": [token_id for row in rows for token_id in row.ids],
        "completion_tokens": [len(row.ids) if row.total is None else row.total for row in rows],
        "cached_tokens": [row.cached for row in rows],
        "logprobs": logprob_columns([row.logprobs for row in rows]) if any(row.logprobs for row in rows) else None,
        "prompt_logprobs": {place: row.prompt for place, row in places if row.prompt is not None},
        "hidden_states": {place: row.hidden_states for place, row in places if row.hidden_states},
        "multi_ids": {place: row.multi_ids for place, row in places if row.multi_ids},
        "extra_info": {place: row.extra_info for place, row in places if row.extra_info},
    }
