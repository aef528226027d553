"""The embedded engine's step: plan, run the model, sample, measure, finish. No sockets, no processes."""

import logging
from collections.abc import Sequence as Rows
from typing import Protocol

import torch

from engines.errors import EngineFault, InvalidLogits, Overloaded, RequestError, TailraceError
from engines.local.logprobs import PositionLogprobs
from engines.local.packed_step import Span
from engines.local.prompt_scoring import PromptScore, PromptScorer
from engines.local.request_check import check_request
from engines.local.sampling import Sampler
from engines.local.scheduler import Piece, Scheduler
from engines.local.sequence import Sequence
from engines.local.step_output import StepOutput
from engines.local.token_choice import Choice, TokenChooser
from engines.protocol import EngineRequest, Finish, FinishKind, PromptLogprobs

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs a model over tokens of many slots at once; `engines.local.runner.ModelRunner` is the real one."""

    def hidden_states(self, spans: Rows[Span]) -> torch.Tensor:
        """Hidden states [total tokens, hidden] in the order of the spans, whose slots then hold them."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, vocabulary]."""


class EngineCore:
    """All requests of all gateways, and the step that moves them on.

    A request that can't be computed, and each request of a step that failed, ends with a row that says so. `steps` and
    `computed_tokens`, of prompts and outputs, count from the start; tokens from the prefix cache aren't among them.
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
        self._chooser = TokenChooser(runner.logits, self._sampler)
        self._scorer = PromptScorer(runner.logits, vocab_size)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._eos_token_ids = frozenset(eos_token_ids)
        self._refusals: list[StepOutput] = []
        self._arrivals = 0
        self.steps = 0
        self.computed_tokens = 0

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
            self._scheduler.remove((owner, request_id))

    def drop(self, owner: bytes) -> None:
        """Drop all that a gateway has here."""
        self._refusals = [refusal for refusal in self._refusals if refusal.owner != owner]
        for key in self._scheduler.keys_of(owner):
            self._scheduler.remove(key)

    @torch.inference_mode()
    def step(self) -> list[StepOutput]:
        """Compute one step and return its rows: new tokens, pieces of prompt logprobs, ends, refusals."""
        outputs, self._refusals = self._refusals, []
        pieces: list[Piece] = []
        try:
            pieces = self._scheduler.plan()
            results = self._compute(pieces) if pieces else []
        # Whatever the model or a kernel raises must end these requests, and only these.
        except Exception:
            logger.exception("step %d failed", self.steps)
            fault = EngineFault("the engine failed in a step of this request")
            failed = [piece.sequence for piece in pieces] or self._scheduler.in_slots()
            return outputs + [self._fail(sequence, fault) for sequence in failed]
        for piece, result in zip(pieces, results, strict=True):
            piece.sequence.computed += piece.count
            if (output := self._advance(piece.sequence, *result)) is not None:
                outputs.append(output)
        return outputs

    def _check(self, owner: bytes, request: EngineRequest) -> None:
        check_request(request, vocab_size=self._vocab_size, max_model_len=self._max_model_len)
        if (owner, request.id) in self._scheduler:
            raise RequestError("a request of this id is in the engine already")
        if self._scheduler.full:
            raise Overloaded("the engine's queue is full")

    def _compute(self, pieces: list[Piece]) -> list[tuple[Choice | None, PromptScore | None]]:
        """Run the pieces. Of those that a token follows from, the token; of all, what they bring of the prompt."""
        self.steps += 1
        hidden = self._runner.hidden_states(
            [Span(piece.sequence.slot, piece.sequence.computed, piece.sequence.tokens(piece.count)) for piece in pieces]
        )
        self.computed_tokens += len(hidden)
        scores = self._scorer.score(pieces, hidden)
        chosen = [piece.completes and piece.sequence.generates for piece in pieces]
        ends = torch.tensor([piece.count for piece in pieces]).cumsum(0) - 1
        last = ends[torch.tensor(chosen)]
        sequences = [piece.sequence for piece, choose in zip(pieces, chosen, strict=True) if choose]
        choices = iter(self._chooser.choose(sequences, hidden[last.to(hidden.device)]))
        return [(next(choices) if choose else None, score) for choose, score in zip(chosen, scores, strict=True)]

    def _advance(self, sequence: Sequence, choice: Choice | None, score: PromptScore | None) -> StepOutput | None:
        """Give a sequence its token, or its end without one, and logprobs of its prompt; None if there is neither."""
        if (score is not None and not score.valid) or (choice is not None and not choice.valid):
            return self._fail(sequence, InvalidLogits("the model gave no valid numbers at a position of this request"))
        prompt = score.logprobs if score is not None else None
        if not sequence.generates and not sequence.pending:
            self._scheduler.remove(sequence.key)
            return _row(sequence, prompt=prompt, finish=Finish(FinishKind.LENGTH))
        if choice is None:
            return _row(sequence, prompt=prompt) if prompt is not None else None
        finish = sequence.append(choice.token, self._eos_token_ids, self._max_model_len)
        if finish is not None:
            self._scheduler.remove(sequence.key)
        return _row(sequence, token=choice.token, position=choice.logprobs, prompt=prompt, finish=finish)

    def _fail(self, sequence: Sequence, error: TailraceError) -> StepOutput:
        self._scheduler.remove(sequence.key, keep=False)
        return _row(sequence, finish=Finish(FinishKind.ERROR, code=error.code, message=error.message))


def _row(
    sequence: Sequence,
    *,
    token: int | None = None,
    position: PositionLogprobs | None = None,
    prompt: PromptLogprobs | None = None,
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
        prompt=prompt,
        finish=finish,
    )
