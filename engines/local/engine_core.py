"""The embedded engine's step: plan, run the model, sample, measure, finish. No sockets, no processes."""

import logging
from collections.abc import Sequence as Rows
from typing import Protocol

import torch

from engines.errors import EngineFault, InvalidLogits, Overloaded, RequestError, TailraceError
from engines.local.logprobs import PositionLogprobs, measure
from engines.local.request_check import check_request
from engines.local.row_selection import select_rows
from engines.local.runner import Span
from engines.local.sampling import Sampled, Sampler
from engines.local.scheduler import Piece, Scheduler
from engines.local.sequence import Key, Sequence
from engines.local.step_output import StepOutput
from engines.protocol import EngineRequest, Finish, FinishKind, LogprobsMode

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs a model over tokens of many slots at once; `engines.local.runner.ModelRunner` is the real one."""

    def hidden_states(self, spans: Rows[Span]) -> torch.Tensor:
        """Hidden states [total tokens, hidden] in the order of the spans, whose slots then hold them."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, vocabulary]."""

    def release(self, slot: int) -> None:
        """Forget what a slot holds."""


class EngineCore:
    """All requests of all gateways, and the step that moves them on.

    A request that can't be computed, and each request of a step that failed, ends with a row that says so.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        *,
        vocab_size: int,
        max_model_len: int,
        eos_token_ids: Rows[int],
        device: torch.device,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._sampler = Sampler(vocab_size, device)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._eos_token_ids = frozenset(eos_token_ids)
        self._refusals: list[StepOutput] = []
        self._arrivals = 0
        self.steps = 0

    @property
    def running(self) -> int:
        """Requests in slots."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return self._scheduler.waiting

    @property
    def busy(self) -> bool:
        """Whether there is anything to do or to say."""
        return bool(self.running or self.waiting or self._refusals)

    def submit(self, owner: bytes, request: EngineRequest) -> None:
        """Queue a gateway's request; a refusal is a row of the next step."""
        try:
            self._check(owner, request)
        except TailraceError as error:
            finish = Finish(FinishKind.ERROR, code=error.code, message=error.message)
            self._refusals.append(StepOutput(owner, request.id, len(request.prompt_token_ids), finish=finish))
            return
        params = request.sampling
        ending = [*params.stop_token_ids, *(() if params.ignore_eos else self._eos_token_ids)]
        state = self._sampler.start(params, request.prompt_token_ids, ending)
        self._arrivals += 1
        self._scheduler.add(Sequence(owner, request, state, self._arrivals))

    def abort(self, owner: bytes, request_ids: Rows[str]) -> None:
        """Drop a gateway's requests, without a row. Unknown ids are ignored."""
        for request_id in request_ids:
            self._remove((owner, request_id))

    def drop(self, owner: bytes) -> None:
        """Drop all that a gateway has here."""
        self._refusals = [refusal for refusal in self._refusals if refusal.owner != owner]
        for key in self._scheduler.keys_of(owner):
            self._remove(key)

    @torch.inference_mode()
    def step(self) -> list[StepOutput]:
        """Compute one step and return its rows: new tokens, ends, refusals."""
        outputs, self._refusals = self._refusals, []
        pieces = self._scheduler.plan()
        if not pieces:
            return outputs
        self.steps += 1
        complete = [piece.sequence for piece in pieces if piece.completes]
        try:
            chosen = self._choose(complete, self._run(pieces))
        # Whatever the model or a kernel raises must end these requests, and only these.
        except Exception:
            logger.exception("step %d failed", self.steps)
            fault = EngineFault("the engine failed in a step of this request")
            return outputs + [self._fail(piece.sequence, fault) for piece in pieces]
        for piece in pieces:
            piece.sequence.computed += piece.count
        return outputs + [self._advance(*choice) for choice in zip(complete, *chosen, strict=True)]

    def _check(self, owner: bytes, request: EngineRequest) -> None:
        check_request(request, vocab_size=self._vocab_size, max_model_len=self._max_model_len)
        if (owner, request.id) in self._scheduler:
            raise RequestError("a request of this id is in the engine already")
        if self._scheduler.full:
            raise Overloaded("the engine's queue is full")

    def _run(self, pieces: list[Piece]) -> torch.Tensor:
        """Run the pieces; hidden states [complete pieces, hidden] of the last token of each that is complete."""
        hidden = self._runner.hidden_states(
            [Span(piece.sequence.slot, piece.sequence.computed, piece.sequence.tokens(piece.count)) for piece in pieces]
        )
        ends = torch.tensor([piece.count for piece in pieces]).cumsum(0) - 1
        last = ends[torch.tensor([piece.completes for piece in pieces])]
        return hidden[last.to(hidden.device)]

    def _choose(
        self, sequences: list[Sequence], hidden: torch.Tensor
    ) -> tuple[list[int], list[bool], list[PositionLogprobs | None]]:
        """Choose the sequences' next tokens: ids, whether they are valid, logprobs where wanted."""
        if not sequences:
            return [], [], []
        logits = self._runner.logits(hidden)
        sampled = self._sampler.sample(logits, [sequence.sampling for sequence in sequences])
        logprobs = self._measure(sequences, logits, sampled)
        return sampled.token_ids.tolist(), sampled.valid.tolist(), logprobs

    def _measure(
        self, sequences: list[Sequence], logits: torch.Tensor, sampled: Sampled
    ) -> list[PositionLogprobs | None]:
        """Logprobs of the rows that want them, those of one mode together."""
        result: list[PositionLogprobs | None] = [None] * len(sequences)
        for mode, source in ((LogprobsMode.RAW, logits), (LogprobsMode.PROCESSED, sampled.processed)):
            wishes = {
                row: sequence.request.logprobs
                for row, sequence in enumerate(sequences)
                if sequence.request.logprobs is not None and sequence.request.logprobs.mode is mode
            }
            if not wishes:
                continue
            rows = list(wishes)
            logits_part, tokens = select_rows(source, rows), select_rows(sampled.token_ids, rows)
            for row, position in zip(rows, measure(logits_part, tokens, list(wishes.values())), strict=True):
                result[row] = position
        return result

    def _advance(self, sequence: Sequence, token: int, valid: bool, position: PositionLogprobs | None) -> StepOutput:
        """Give a sequence its token, or its end without one."""
        if sequence.request.sampling.max_tokens == 0:
            return self._end(sequence, Finish(FinishKind.LENGTH))
        if not valid:
            return self._fail(sequence, InvalidLogits("the model gave no valid numbers at this position"))
        finish = sequence.append(token, self._eos_token_ids, self._max_model_len)
        if finish is not None:
            return self._end(sequence, finish, token, position)
        return _row(sequence, token=token, position=position)

    def _fail(self, sequence: Sequence, error: TailraceError) -> StepOutput:
        return self._end(sequence, Finish(FinishKind.ERROR, code=error.code, message=error.message))

    def _end(
        self, sequence: Sequence, finish: Finish, token: int | None = None, position: PositionLogprobs | None = None
    ) -> StepOutput:
        self._remove(sequence.key)
        return _row(sequence, token=token, position=position, finish=finish)

    def _remove(self, key: Key) -> None:
        sequence = self._scheduler.remove(key)
        if sequence is not None and sequence.slot >= 0:
            self._runner.release(sequence.slot)


def _row(
    sequence: Sequence,
    *,
    token: int | None = None,
    position: PositionLogprobs | None = None,
    finish: Finish | None = None,
) -> StepOutput:
    return StepOutput(
        owner=sequence.owner,
        request_id=sequence.request.id,
        prompt_tokens=len(sequence.request.prompt_token_ids),
        completion_tokens=len(sequence.output_ids),
        cached_tokens=sequence.cached,
        token=token,
        logprobs=position,
        finish=finish,
    )
