"""A listener that keeps what an engine sends, row by row, and lets tests wait for it."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sized
from typing import TypeVar

import msgspec

from engines.protocol import (
    BatchEmbeddingOut,
    BatchStrOut,
    BatchTokenOut,
    EngineInfo,
    Finish,
    Frame,
    PromptLogprobs,
    TokenLogprobs,
)

GUARD = 60.0

T = TypeVar("T")
U = TypeVar("U")


class RecordedRow(msgspec.Struct, kw_only=True):
    """A request's row of one frame; `top` and `chosen` hold (id, value) and (value, rank) pairs, one list a token."""

    frame: Frame
    finish: Finish | None
    prompt_tokens: int
    token_ids: list[int] = []
    completion_tokens: int = 0
    text: str = ""
    values: list[float] = []
    ranks: list[int] = []
    top: list[list[tuple[int, float]]] = []
    chosen: list[list[tuple[float, int]]] = []
    prompt: PromptLogprobs | None = None
    embedding: list[float] = []


class Answer(msgspec.Struct, kw_only=True):
    """A request's rows, joined."""

    token_ids: list[int]
    text: str
    values: list[float]
    ranks: list[int]
    top: list[list[tuple[int, float]]]
    chosen: list[list[tuple[float, int]]]
    prompt: list[PromptLogprobs]
    finish: Finish | None


class FrameRecorder:
    """An EngineListener. `frames`, `rows` by request id, `downs` (engine id, reason) and `ups`: in order of arrival."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.rows: defaultdict[str, list[RecordedRow]] = defaultdict(list)
        self.downs: list[tuple[str, str]] = []
        self.ups: list[EngineInfo] = []
        self._changed = asyncio.Event()

    def on_frame(self, frame: Frame) -> None:
        """Cut a frame into rows."""
        self.frames.append(frame)
        if isinstance(frame, BatchEmbeddingOut):
            self._record_embeddings(frame)
        else:
            self._record_tokens(frame)
        self._changed.set()

    def on_down(self, engine_id: str, reason: str) -> None:
        """Note it."""
        self.downs.append((engine_id, reason))
        self._changed.set()

    def on_up(self, info: EngineInfo) -> None:
        """Note it."""
        self.ups.append(info)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was recorded meets a condition. TimeoutError if it doesn't come to that."""
        async with asyncio.timeout(GUARD):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def finish(self, request_id: str) -> Finish:
        """Wait for a request's end."""
        await self.until(lambda: self.finish_of(request_id) is not None)
        finish = self.finish_of(request_id)
        assert finish is not None
        return finish

    async def tokens(self, request_id: str, count: int) -> list[int]:
        """Wait until a request has at least so many tokens."""
        await self.until(lambda: len(self.answer(request_id).token_ids) >= count)
        return self.answer(request_id).token_ids

    def finish_of(self, request_id: str) -> Finish | None:
        """How a request ended, None if it has not."""
        return next((row.finish for row in self.rows[request_id] if row.finish is not None), None)

    def answer(self, request_id: str) -> Answer:
        """What a request has received up to now."""
        rows = self.rows[request_id]
        return Answer(
            token_ids=[token_id for row in rows for token_id in row.token_ids],
            text="".join(row.text for row in rows),
            values=[value for row in rows for value in row.values],
            ranks=[rank for row in rows for rank in row.ranks],
            top=[top for row in rows for top in row.top],
            chosen=[chosen for row in rows for chosen in row.chosen],
            prompt=[row.prompt for row in rows if row.prompt is not None],
            finish=self.finish_of(request_id),
        )

    def _record_embeddings(self, frame: BatchEmbeddingOut) -> None:
        columns = zip(frame.request_ids, frame.finishes, frame.prompt_tokens, frame.embeddings, strict=True)
        for request_id, finish, prompt_tokens, embedding in columns:
            row = RecordedRow(frame=frame, finish=finish, prompt_tokens=prompt_tokens, embedding=embedding)
            self.rows[request_id].append(row)

    def _record_tokens(self, frame: BatchTokenOut) -> None:
        rows = len(frame.request_ids)
        columns: list[Sized] = [frame.finishes, frame.prompt_tokens, frame.token_counts, frame.completion_tokens]
        assert all(len(column) == rows for column in columns), "columns of a frame have one entry a row"
        token_ids = _parts(frame.token_ids, frame.token_counts)
        logprobs = frame.logprobs or TokenLogprobs(counts=[0] * rows, values=[], ranks=[])
        assert len(logprobs.counts) == rows
        values, ranks = _parts(logprobs.values, logprobs.counts), _parts(logprobs.ranks, logprobs.counts)
        top = _nested(logprobs.counts, logprobs.top_counts, logprobs.top_ids, logprobs.top_values)
        chosen = _nested(logprobs.counts, logprobs.chosen_counts, logprobs.chosen_values, logprobs.chosen_ranks)
        for index, request_id in enumerate(frame.request_ids):
            self.rows[request_id].append(
                RecordedRow(
                    frame=frame,
                    finish=frame.finishes[index],
                    prompt_tokens=frame.prompt_tokens[index],
                    token_ids=token_ids[index],
                    completion_tokens=frame.completion_tokens[index],
                    text=frame.texts[index] if isinstance(frame, BatchStrOut) else "",
                    values=values[index],
                    ranks=ranks[index],
                    top=top[index],
                    chosen=chosen[index],
                    prompt=frame.prompt_logprobs.get(index),
                )
            )


def _parts(flat: list[T], counts: list[int]) -> list[list[T]]:
    """Cut a flat column by a column of counts, which must use it up."""
    rest = iter(flat)
    parts = [list(itertools.islice(rest, count)) for count in counts]
    assert [len(part) for part in parts] == counts, "a flat column is shorter than its counts"
    assert next(rest, None) is None, "a flat column is longer than its counts"
    return parts


def _nested(counts: list[int], widths: list[int], firsts: list[T], seconds: list[U]) -> list[list[list[tuple[T, U]]]]:
    """Cut two parallel columns by rows, and these by tokens: `widths` pairs for each of a row's `counts` tokens."""
    widths = widths or [0] * len(counts)
    assert len(widths) == len(counts)
    assert len(firsts) == len(seconds)
    rows = _parts(list(zip(firsts, seconds, strict=True)), [a * b for a, b in zip(counts, widths, strict=True)])
    return [_parts(row, [width] * count) for row, count, width in zip(rows, counts, widths, strict=True)]
