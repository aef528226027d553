"""One request on its way through its script."""

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engines.protocol import EngineRequest, Finish, FinishKind, PromptLogprobs
from engines.scripted.ending import ending_of
from engines.scripted.faults import Death, Failure, Miscount, NotANumber, Stall, StepFault
from engines.scripted.logprob_rows import LogprobRows, prompt_pieces
from engines.scripted.script import Script


class OutputKind(enum.Enum):
    """Which kind of frame a sequence's rows go into."""

    TOKENS = enum.auto()
    TEXT = enum.auto()
    EMBEDDING = enum.auto()


class Row(NamedTuple):
    """What a sequence sends in one frame: its tokens start .. stop."""

    start: int
    stop: int
    finish: Finish | None = None
    prompt: PromptLogprobs | None = None


class ScriptedSequence:
    """A request's cursor. `rows` are its logprobs, None where it wants none; `ready_at` the loop time of its first row.

    `held` sequences get no row.
    """

    def __init__(
        self,
        request: EngineRequest,
        script: Script,
        rows: LogprobRows | None,
        *,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        max_model_len: int,
        ready_at: float = 0.0,
    ) -> None:
        self.request = request
        self.script = script
        self.rows = rows
        self.ready_at = ready_at
        self.held = False
        self._rows_left: int | None = None
        self.sent = 0
        self.steps = 0
        self.prompt_tokens = len(request.prompt_token_ids)
        self.kind = _kind_of(script)
        if self.kind is OutputKind.EMBEDDING:
            self.token_ids: list[int] = []
            self.finish = script.finish or Finish(FinishKind.STOP)
        else:
            self.token_ids, self.finish = ending_of(script, request, eos_token_ids, max_model_len)
        self.has_extras = bool(
            script.texts is not None
            or script.hidden_states
            or script.multi_ids
            or script.extra_info
            or script.speculative
            or request.continues
        )
        faults = sorted(script.faults, key=lambda fault: fault.at)
        self.nan_at = [fault.at for fault in faults if isinstance(fault, NotANumber)]
        self._miscounts = [fault for fault in faults if isinstance(fault, Miscount)]
        self._faults: list[StepFault] = [fault for fault in faults if isinstance(fault, Stall | Failure | Death)]
        self._groups = itertools.cycle(script.grouping) if script.grouping else None
        self._pieces: Iterator[PromptLogprobs] | None = None
        self._piece: PromptLogprobs | None = None
        if request.logprobs is not None and request.logprobs.prompt_start is not None:
            self._pieces = prompt_pieces(script.values, request.prompt_token_ids, request.logprobs, vocab_size)
            self._piece = next(self._pieces, None)

    @property
    def completion_tokens(self) -> int:
        """The total that rows state."""
        if not self._miscounts:
            return self.sent
        return self.sent + sum(fault.by for fault in self._miscounts if fault.at < self.sent)

    def take_fault(self) -> StepFault | None:
        """Take the fault that shows in the next step, if there is one."""
        return self._faults.pop(0) if self._faults and self._faults[0].at <= self.sent else None

    def fail(self, code: str, message: str) -> Row:
        """The row that ends the sequence with an error."""
        return Row(self.sent, self.sent, Finish(FinishKind.ERROR, code=code, message=message))

    def advance(self) -> Row:
        """The next row: a piece of the prompt's logprobs, the next group of tokens, the finish."""
        start, piece = self.sent, self._piece
        if piece is not None and self._pieces is not None:
            self._piece = next(self._pieces, None)
            if self._piece is not None:
                return Row(start, start, None, piece)
        end = len(self.token_ids)
        stop = start + (1 if self._groups is None else next(self._groups))
        if self._faults and stop > self._faults[0].at:
            stop = self._faults[0].at
        if stop < end or (self.script.finish_apart and start < end):
            self.sent = stop = min(stop, end)
            self.steps += stop > start
            return Row(start, stop, None, piece)
        self.sent = end
        self.steps += end > start
        return Row(start, end, self.finish, piece)

    def obeys_abort(self) -> bool:
        """Whether an abort drops the sequence now; if not, its script says how many rows it still sends."""
        self._rows_left = self.script.frames_after_abort
        return self._rows_left == 0

    def used_last_row(self) -> bool:
        """Count a row that was sent against what an abort left; whether it was the last."""
        if self._rows_left is None:
            return False
        self._rows_left -= 1
        return self._rows_left == 0


def _kind_of(script: Script) -> OutputKind:
    if script.embedding is not None:
        return OutputKind.EMBEDDING
    return OutputKind.TOKENS if script.texts is None else OutputKind.TEXT
