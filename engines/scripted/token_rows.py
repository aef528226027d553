"""The columns of one token frame while it is gathered."""

import math
from typing import Any

import msgspec

from engines.protocol import BatchStrOut, BatchTokenOut, Finish, PromptLogprobs, TokenLogprobs
from engines.scripted.sequence import Row, ScriptedSequence


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What all frames of a step share, see `engines.protocol.BatchOut`."""

    engine_id: str
    timestamp: float
    step: int
    running: int
    waiting: int
    paused: bool
    weight_version: str


class TokenRows:
    """The columns of one token frame."""

    def __init__(self) -> None:
        self.request_ids: list[str] = []
        self.finishes: list[Finish | None] = []
        self.prompt_tokens: list[int] = []
        self.token_counts: list[int] = []
        self.token_ids: list[int] = []
        self.completion_tokens: list[int] = []
        self.cached_tokens: list[int] = []
        self.texts: list[str] = []
        self.logprobs: TokenLogprobs | None = None
        self.prompt_logprobs: dict[int, PromptLogprobs] = {}
        self.hidden_states: dict[int, list[list[float]]] = {}
        self.multi_ids: dict[int, list[list[int]]] = {}
        self.extra_info: dict[int, dict[str, Any]] = {}
        self.drafts: dict[int, tuple[int, int]] = {}
        self.segments: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.request_ids)

    def add(self, sequence: ScriptedSequence, row: Row) -> None:
        """Append a row."""
        start, stop, finish, prompt = row
        index = len(self.request_ids)
        self.request_ids.append(sequence.request.id)
        self.finishes.append(finish)
        self.prompt_tokens.append(sequence.prompt_tokens)
        self.token_counts.append(stop - start)
        self.token_ids += sequence.token_ids[start:stop]
        self.completion_tokens.append(sequence.completion_tokens)
        self.cached_tokens.append(sequence.script.cached_tokens)
        if sequence.rows is not None:
            self._add_logprobs(sequence, start, stop)
        elif self.logprobs is not None:
            self._count_logprobs(self.logprobs, 0, 0, 0)
        if prompt is not None:
            self.prompt_logprobs[index] = prompt
        if sequence.has_extras:
            self._add_extras(index, sequence, start, stop)

    def _add_logprobs(self, sequence: ScriptedSequence, start: int, stop: int) -> None:
        rows, columns = sequence.rows, self.logprobs
        assert rows is not None
        if columns is None:
            before = [0] * (len(self.request_ids) - 1)
            columns = self.logprobs = TokenLogprobs(
                counts=before, values=[], ranks=[], top_counts=[*before], chosen_counts=[*before]
            )
        self._count_logprobs(columns, stop - start, rows.top_k, len(rows.chosen_ids))
        first = len(columns.values)
        rows.copy(start, stop, columns)
        for at in sequence.nan_at:
            if start <= at < stop:
                columns.values[first + at - start] = math.nan

    def _count_logprobs(self, columns: TokenLogprobs, count: int, top: int, chosen: int) -> None:
        columns.counts.append(count)
        columns.top_counts.append(top)
        columns.chosen_counts.append(chosen)

    def _add_extras(self, index: int, sequence: ScriptedSequence, start: int, stop: int) -> None:
        script = sequence.script
        if script.texts is not None:
            texts = script.texts
            self.texts.append("".join([texts[place % len(texts)] for place in range(start, stop)]))
        if sequence.request.return_hidden_states and script.hidden_states[start:stop]:
            self.hidden_states[index] = script.hidden_states[start:stop]
        if script.multi_ids[start:stop]:
            self.multi_ids[index] = script.multi_ids[start:stop]
        for place in range(start, stop):
            if place in script.extra_info:
                self.extra_info[index] = script.extra_info[place]
        if script.speculative:
            self.drafts[index] = (sequence.sent - sequence.steps, sequence.steps)
        if sequence.request.continues:
            self.segments[index] = sequence.request.continues

    def frame(self, header: Header) -> BatchTokenOut:
        """The frame; one of texts if the rows have any."""
        if self.logprobs is not None:
            if not self.logprobs.top_ids:
                self.logprobs.top_counts = []
            if not self.logprobs.chosen_values:
                self.logprobs.chosen_counts = []
        rows = range(len(self.request_ids))
        tokens = BatchTokenOut(
            engine_id=header.engine_id,
            timestamp=header.timestamp,
            request_ids=self.request_ids,
            finishes=self.finishes,
            prompt_tokens=self.prompt_tokens,
            step=header.step,
            running=header.running,
            waiting=header.waiting,
            paused=header.paused,
            weight_version=header.weight_version,
            extra_info=self.extra_info,
            token_counts=self.token_counts,
            token_ids=self.token_ids,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            hidden_states=self.hidden_states,
            multi_ids=self.multi_ids,
            accepted_draft_tokens=[self.drafts.get(row, (0, 0))[0] for row in rows] if self.drafts else [],
            verify_steps=[self.drafts.get(row, (0, 0))[1] for row in rows] if self.drafts else [],
            segments=[self.segments.get(row, 0) for row in rows] if self.segments else [],
        )
        if not self.texts:
            return tokens
        return BatchStrOut(texts=self.texts, **msgspec.structs.asdict(tokens))
