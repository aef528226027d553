"""The output loop: one pass over the rows of an engine's frame, each row to its request's collector."""

import logging
import math
import time
from collections.abc import Callable, Iterable

from engines.errors import Aborted, EngineFault, InternalFault, InvalidLogits, TailraceError, error_of
from engines.protocol import BatchEmbeddingOut, BatchTokenOut, Finish, FinishKind, Frame
from processors.columns import LogprobColumns, TokenColumns, check_columns
from processors.delta import Delta, Extras, Logprobs
from processors.meter import Meter
from processors.state import RequestState
from processors.step import StepView

log = logging.getLogger("tailrace.output")

_WARNING_INTERVAL = 10.0


class OutputProcessor:
    """Owns the table of live requests.

    A request leaves the table by one door, `_leave`, whoever ends it. `abort` is told of each request that ends here
    while the engine still runs it, once.
    """

    def __init__(self, meter: Meter, abort: Callable[[list[str]], None]) -> None:
        self._meter = meter
        self._abort = abort
        self._table: dict[str, RequestState] = {}
        self._warned_at = 0.0
        self.on_idle: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._table)

    def add(self, state: RequestState) -> None:
        """Enter a request before the engine can answer it."""
        self._table[state.id] = state

    def cancel(self, state: RequestState, cause: str) -> None:
        """End a request whose reader is gone; nothing happens if it has already ended."""
        if state.id in self._table:
            self._leave(state, "abort", cause)
            self._abort([state.id])

    def fail(self, states: Iterable[RequestState], error: TailraceError, *, in_engine: bool = True) -> None:
        """End requests with an error; `in_engine` says whether the engine must be told.

        An abort is an end like any other and comes as a finish: some dialects answer it with what is there.
        """
        live = [state for state in states if state.id in self._table]
        for state in live:
            if isinstance(error, Aborted):
                state.abort(error.message)
                self._leave(state, "abort", error.code)
            else:
                state.collector.fail(error)
                self._leave(state, "error", error.code)
        if in_engine and live:
            self._abort([state.id for state in live])

    def fail_all(self, error: TailraceError, *, in_engine: bool = True) -> None:
        """End every live request with an error."""
        self.fail(list(self._table.values()), error, in_engine=in_engine)

    def named(self, name: str) -> list[RequestState]:
        """The live requests that a client knows by this name."""
        return [state for state in self._table.values() if name in state.names]

    def process(self, frame: Frame) -> None:
        """Take a frame. A fault in one row is its own request's end, never another's.

        A frame whose columns contradict each other ends all its requests: no row of it can be trusted.
        """
        try:
            check_columns(frame)
        except EngineFault as fault:
            log.error("engine %s: %s", frame.engine_id, fault.message)
            self.fail([self._table[id_] for id_ in dict.fromkeys(frame.request_ids) if id_ in self._table], fault)
            return
        if isinstance(frame, BatchEmbeddingOut):
            self._process_embeddings(frame)
        else:
            self._process_tokens(frame)
        # An engine drops what was aborted without a frame, and no later one would correct these.
        running, waiting = (frame.running, frame.waiting) if self._table else (0, 0)
        self._meter.set_load(frame.engine_id, running, waiting)

    def _process_tokens(self, frame: BatchTokenOut) -> None:
        step = StepView(frame, time.monotonic())
        tokens = TokenColumns(frame)
        columns = LogprobColumns(frame.logprobs) if frame.logprobs is not None else None
        unknown = 0
        for row, request_id in enumerate(frame.request_ids):
            token_ids = tokens.take(row)
            logprobs: Logprobs | None = None
            fault: TailraceError | None = None
            if columns is not None:
                try:
                    logprobs = columns.take(row)
                except EngineFault as error:
                    fault = error
            state = self._table.get(request_id)
            if state is None:
                unknown += 1
            elif fault is not None:
                self.fail([state], fault, in_engine=frame.finishes[row] is None)
            else:
                self._process_row(state, step, row, token_ids, logprobs)
        self._meter.count_frame(len(frame.request_ids), unknown, len(frame.token_ids))
        if unknown:
            self._warn_unknown(unknown, step.now)

    def _process_row(
        self, state: RequestState, step: StepView, row: int, token_ids: list[int], logprobs: Logprobs | None
    ) -> None:
        try:
            finish = state.advance(step, row, token_ids, logprobs)
        except TailraceError as error:
            self.fail([state], error, in_engine=step.frame.finishes[row] is None)
        except Exception:
            log.exception("request %s failed in the output loop", state.id)
            fault = InternalFault("The gateway failed to process the output.")
            self.fail([state], fault, in_engine=step.frame.finishes[row] is None)
        else:
            if finish is not None:
                self._finish(state, finish, ended_by_engine=step.frame.finishes[row] is not None)

    def _process_embeddings(self, frame: BatchEmbeddingOut) -> None:
        unknown = 0
        for row, request_id in enumerate(frame.request_ids):
            state = self._table.get(request_id)
            finish = frame.finishes[row]
            if state is None:
                unknown += 1
            elif finish is not None:
                try:
                    state.collector.put(_embedding(frame, row, finish))
                except TailraceError as error:
                    self.fail([state], error, in_engine=False)
                else:
                    self._finish(state, finish, ended_by_engine=True)
        self._meter.count_frame(len(frame.request_ids), unknown, 0)

    def _finish(self, state: RequestState, finish: Finish, *, ended_by_engine: bool) -> None:
        self._leave(state, finish.kind.value, finish.code)
        if not ended_by_engine:
            self._abort([state.id])

    def _leave(self, state: RequestState, reason: str, code: str) -> None:
        if self._table.pop(state.id, None) is None:
            return
        self._meter.observe_finish(state.finished(reason, code, time.monotonic()))
        if not self._table and self.on_idle is not None:
            self.on_idle()

    def _warn_unknown(self, count: int, now: float) -> None:
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            log.info("dropped %d row(s) of requests that are not live (any more)", count)


def _embedding(frame: BatchEmbeddingOut, row: int, finish: Finish) -> Delta:
    """The whole answer of a row. Raises what a row that ends in an error says, InvalidLogits for NaN or infinity."""
    if finish.kind is FinishKind.ERROR:
        raise error_of(finish.code, finish.message)
    embedding = frame.embeddings[row]
    if not all(map(math.isfinite, embedding)):
        raise InvalidLogits("The engine produced an embedding with values that are not numbers.")
    extra_info = frame.extra_info.get(row)
    return Delta(
        text="",
        token_ids=[],
        lengths=[],
        prompt_tokens=frame.prompt_tokens[row],
        completion_tokens=0,
        cached_tokens=0,
        embedding=embedding,
        finish=finish,
        extras=Extras(extra_info=extra_info) if extra_info is not None else None,
        weight_version=frame.weight_version,
    )
