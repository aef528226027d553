"""A token frame, column by column."""

import itertools
import math
from collections.abc import Sequence

import msgspec

from engines.protocol import BatchStrOut, BatchTokenOut, TokenLogprobs
from engines.scripted.sequence import Row


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What all frames of a step share, see `engines.protocol.BatchOut`."""

    engine_id: str
    timestamp: float
    step: int
    running: int
    waiting: int
    weight_version: str


def token_frame(rows: Sequence[Row], header: Header) -> BatchTokenOut:
    """The frame of some rows."""
    frame = BatchTokenOut(
        engine_id=header.engine_id,
        timestamp=header.timestamp,
        step=header.step,
        running=header.running,
        waiting=header.waiting,
        weight_version=header.weight_version,
        request_ids=[row.sequence.id for row in rows],
        finishes=[row.finish for row in rows],
        prompt_tokens=[row.sequence.prompt_tokens for row in rows],
        token_counts=[row.stop - row.start for row in rows],
        token_ids=list(itertools.chain.from_iterable([row.sequence.token_ids[row.start : row.stop] for row in rows])),
        completion_tokens=[row.completion_tokens for row in rows],
        cached_tokens=[row.sequence.script.cached_tokens for row in rows],
        prompt_logprobs={index: row.prompt for index, row in enumerate(rows) if row.prompt is not None},
    )
    if any(row.sequence.logprobs is not None for row in rows):
        frame.logprobs = _logprobs(rows)
    if any(row.sequence.has_extras for row in rows):
        _add_extras(frame, rows)
    return frame


def text_frame(rows: Sequence[Row], header: Header) -> BatchStrOut:
    """The frame of rows whose scripts dictate text."""
    return BatchStrOut(
        texts=["".join(row.sequence.texts_between(row.start, row.stop)) for row in rows],
        **msgspec.structs.asdict(token_frame(rows, header)),
    )


def _logprobs(rows: Sequence[Row]) -> TokenLogprobs:
    columns = TokenLogprobs(counts=[], values=[], ranks=[])
    for row in rows:
        logprobs, start, stop = row.sequence.logprobs, row.start, row.stop
        if logprobs is None:
            columns.counts.append(0)
            columns.top_counts.append(0)
            columns.chosen_counts.append(0)
            continue
        columns.counts.append(stop - start)
        columns.top_counts.append(logprobs.top_k)
        columns.chosen_counts.append(logprobs.chosen)
        first = len(columns.values)
        logprobs.copy(start, stop, columns)
        for at in row.sequence.nan_at:
            if start <= at < stop:
                columns.values[first + at - start] = math.nan
    if not columns.top_ids:
        columns.top_counts = []
    if not columns.chosen_values:
        columns.chosen_counts = []
    return columns


def _add_extras(frame: BatchTokenOut, rows: Sequence[Row]) -> None:
    for index, row in enumerate(rows):
        script, start, stop = row.sequence.script, row.start, row.stop
        if row.sequence.request.return_hidden_states and script.hidden_states[start:stop]:
            frame.hidden_states[index] = script.hidden_states[start:stop]
        if script.multi_ids[start:stop]:
            frame.multi_ids[index] = script.multi_ids[start:stop]
        infos = [script.extra_info[place] for place in range(start, stop) if place in script.extra_info]
        if infos:
            frame.extra_info[index] = infos[-1]
    speculative = [row.sequence.script.speculative for row in rows]
    if any(speculative):
        frame.accepted_draft_tokens = [row.accepted * drafts for row, drafts in zip(rows, speculative, strict=True)]
        frame.verify_steps = [row.verified * drafts for row, drafts in zip(rows, speculative, strict=True)]
    if any(row.sequence.request.continues for row in rows):
        frame.segments = [row.sequence.request.continues for row in rows]
