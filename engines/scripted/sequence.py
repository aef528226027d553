"""One request on its way through its script."""

import enum
import itertools
from collections.abc import Sequence

import msgspec

from engines.protocol import EngineRequest, Finish, FinishKind, PromptLogprobs
from engines.scripted.ending import ending_of
from engines.scripted.faults import Death, Failure, Miscount, NotANumber, Stall, StepFault
from engines.scripted.script import Script
from engines.scripted.script_logprobs import ScriptLogprobs, pieces_of


class OutputKind(enum.Enum):
    """Which kind of frame a sequence's rows go into."""

    TOKENS = enum.auto()
    TEXT = enum.auto()
    EMBEDDING = enum.auto()


class Row(msgspec.Struct, gc=False):
    """What a sequence sends in one frame: its tokens start .. stop, and totals after them.

    accepted, verified: draft tokens accepted, and steps that verified them.
    """

    sequence: "ScriptedSequence"
    start: int
    stop: int
    completion_tokens: int
    accepted: int = 0
    verified: int = 0
    finish: Finish | None = None
    prompt: PromptLogprobs | None = None


class ScriptedSequence:
    """A request's cursor. `logprobs`: its columns, None where it wants none; `ready_at`: loop time of its first row.

    A sequence that is `held` gets no row.
    """

    def __init__(
        self,
        request: EngineRequest,
        script: Script,
        logprobs: ScriptLogprobs | None,
        *,
        eos_token_ids: Sequence[int],
        max_model_len: int,
        ready_at: float = 0.0,
    ) -> None:
        self.id = request.id
        self.request = request
        self.script = script
        self.logprobs = logprobs
        self.ready_at = ready_at
        self.held = False
        self.prompt_tokens = len(request.prompt_token_ids)
        self.kind = _kind_of(script)
        if self.kind is OutputKind.EMBEDDING:
            self.token_ids: list[int] = []
            self.finish = script.finish or Finish(FinishKind.STOP)
        else:
            self.token_ids, self.finish = ending_of(script, request, eos_token_ids, max_model_len)
        self.has_extras = bool(
            script.hidden_states or script.multi_ids or script.extra_info or script.speculative or request.continues
        )
        self.nan_at = [fault.at for fault in script.faults if isinstance(fault, NotANumber)]
        self._miscounts = [fault for fault in script.faults if isinstance(fault, Miscount)]
        self._faults: list[StepFault] = sorted(
            (fault for fault in script.faults if isinstance(fault, Stall | Failure | Death)), key=lambda fault: fault.at
        )
        self._groups = itertools.cycle(script.grouping) if script.grouping else None
        self._first_position = request.logprobs.prompt_start if request.logprobs is not None else None
        self._pieces = pieces_of(request)
        self._sent = 0
        self._verified = 0
        self._rows_left: int | None = None
        self._meet_stall()

    def texts_between(self, start: int, stop: int) -> list[str]:
        """The dictated texts of tokens start .. stop."""
        texts = self.script.texts or []
        return [texts[place % len(texts)] for place in range(start, stop)]

    def take_fault(self) -> StepFault | None:
        """Take the fault that shows in the next step, if there is one."""
        return self._faults.pop(0) if self._faults and self._faults[0].at <= self._sent else None

    def fail(self, code: str, message: str) -> Row:
        """The row that ends the sequence with an error."""
        return self._row(self._sent, Finish(FinishKind.ERROR, code=code, message=message))

    def advance(self) -> Row:
        """The next row: a piece of the prompt's logprobs, the next group of tokens, the finish."""
        start, piece = self._sent, None
        if self._pieces and self.logprobs is not None:
            piece = self.logprobs.prompt_piece(self.request.prompt_token_ids, self._pieces.pop(0), self._first_position)
            if self._pieces:
                return self._row(start, None, piece)
        end = len(self.token_ids)
        stop = start + (1 if self._groups is None else next(self._groups))
        if self._faults and stop > self._faults[0].at:
            stop = self._faults[0].at
        if stop < end:
            return self._row(stop, None, piece)
        return self._row(end, None if self.script.finish_apart and start < end else self.finish, piece)

    def _row(self, stop: int, finish: Finish | None, piece: PromptLogprobs | None = None) -> Row:
        start, self._sent = self._sent, stop
        if stop > start:
            self._verified += 1
        if self._faults:
            self._meet_stall()
        total = stop
        if self._miscounts:
            total += sum(fault.by for fault in self._miscounts if fault.at < stop)
        return Row(self, start, stop, total, stop - self._verified, self._verified, finish, piece)

    def _meet_stall(self) -> None:
        """Stall as soon as the tokens before it are sent, so that a release that follows them finds it."""
        if self._faults and self._faults[0].at <= self._sent and isinstance(self._faults[0], Stall):
            self.take_fault()
            self.held = True

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
