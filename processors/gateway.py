"""The gateway between routers and one engine: owns the life of every request.

`open` is the only way in. Leaving its context is the only way out: whatever is still live then is aborted, once.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

from engines.errors import (
    Aborted,
    Draining,
    EngineDied,
    EngineUnavailable,
    RateLimited,
    TailraceError,
    UnsupportedFeature,
)
from engines.protocol import EngineClient, EngineInfo, EngineState, Frame
from processors.collector import Collector
from processors.detokenizer import Detokenizer, TableDetokenizer, WindowDetokenizer
from processors.input import InputProcessor
from processors.limits import Limits
from processors.meter import NO_METER, Meter
from processors.output import OutputProcessor
from processors.request import PreparedRequest
from processors.state import RequestState
from processors.text import TextStream
from processors.tokenizer import TextTokenizer
from processors.vocabulary import Vocabulary

log = logging.getLogger("tailrace.gateway")


class Gateway:
    """One engine's front: hears its frames, hands out collectors, drains in order.

    In raw-token mode (skip_tokenizer) there is no tokenizer: prompts are token ids, and answers have no text.
    """

    def __init__(
        self,
        engine: EngineClient,
        *,
        meter: Meter = NO_METER,
        limits: Limits | None = None,
        skip_tokenizer: bool = False,
    ) -> None:
        self._engine = engine
        self._meter = meter
        self._limits = limits or Limits()
        self._skip_tokenizer = skip_tokenizer
        self._scoring = 0
        self._output = OutputProcessor(meter, engine.abort)
        self._output.on_idle = self._note_idle
        self._tokenizer: TextTokenizer | None = None
        self._input: InputProcessor | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    async def start(self) -> None:
        """Start the engine and load its tokenizer. EngineUnavailable if the engine can't be had."""
        await self._engine.start(self)
        info = self._engine.info
        if not self._skip_tokenizer:
            loop = asyncio.get_running_loop()
            self._tokenizer = await loop.run_in_executor(None, TextTokenizer.load, info.tokenizer, info.vocab_size)
        self._input = InputProcessor(self._tokenizer, info, self._limits)
        self._meter.set_engine_up(info.engine_id, self._engine.state is EngineState.READY)

    @property
    def info(self) -> EngineInfo:
        """What the engine says of itself."""
        return self._engine.info

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer; UnsupportedFeature in raw-token mode."""
        if self._skip_tokenizer:
            raise UnsupportedFeature("The server runs without a tokenizer: send token ids to /generate.")
        if self._tokenizer is None:
            raise EngineUnavailable("The engine is starting.", retry_after=1)
        return self._tokenizer

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tables of token texts; None in raw-token mode."""
        return None if self._skip_tokenizer else self.tokenizer.vocabulary

    @property
    def input(self) -> InputProcessor:
        """Checks and tokenizes requests."""
        if self._input is None:
            raise EngineUnavailable("The engine is starting.", retry_after=1)
        return self._input

    @property
    def running(self) -> int:
        """Live requests."""
        return len(self._output)

    @property
    def engine_ready(self) -> bool:
        """Whether the engine takes requests."""
        return self._input is not None and self._engine.state is EngineState.READY

    @property
    def ready(self) -> bool:
        """Whether new work is taken."""
        return self.engine_ready and not self.draining

    @contextlib.asynccontextmanager
    async def open(self, requests: Sequence[PreparedRequest]) -> AsyncIterator[list[Collector]]:
        """Submit requests that live and die together; yields one collector each, in order.

        Draining or EngineUnavailable where nothing is taken now, RateLimited where too many others have their prompts
        scored. What has not ended when the context is left, by an
        error or a cancellation too, is aborted.
        """
        if self.draining:
            raise Draining("The server is shutting down.", retry_after=1)
        states = [self._state(request) for request in requests]
        with self._scoring_place(requests):
            try:
                self._submit(states, requests)
                yield [state.collector for state in states]
            finally:
                for state in states:
                    self._output.cancel(state, "left")

    @contextlib.contextmanager
    def _scoring_place(self, requests: Sequence[PreparedRequest]) -> Iterator[None]:
        """Take one of the places for requests that want logprobs of their prompts."""
        wishes = [request.engine_request.logprobs for request in requests]
        if all(wish is None or wish.prompt_start is None for wish in wishes):
            yield
            return
        if self._scoring >= self._limits.max_scoring_requests:
            raise RateLimited(
                f"{self._scoring} requests have their prompts scored, the most at once (--max-scoring-requests).",
                retry_after=1,
            )
        self._scoring += 1
        try:
            yield
        finally:
            self._scoring -= 1

    def _submit(self, states: Sequence[RequestState], requests: Sequence[PreparedRequest]) -> None:
        for state, request in zip(states, requests, strict=True):
            self._output.add(state)
            self._idle.clear()
            try:
                self._engine.submit(request.engine_request)
            except EngineUnavailable as error:
                self._output.fail([state], error, in_engine=False)
                raise

    def begin_drain(self) -> None:
        """Refuse new requests from now on."""
        self.draining = True

    async def idle(self) -> None:
        """Wait until no request is live."""
        await self._idle.wait()

    def abort_all(self, error: TailraceError) -> None:
        """End every live request with the error; the engine is told."""
        self._output.fail_all(error)

    def abort(self, name: str) -> int:
        """Abort every live request that its client calls by exactly this name; return how many."""
        states = self._output.named(name)
        self._output.fail(states, Aborted("The request was aborted."))
        return len(states)

    async def close(self) -> None:
        """Let go of the engine and the tokenizer's threads."""
        await self._engine.close()
        if self._tokenizer is not None:
            self._tokenizer.close()

    def on_frame(self, frame: Frame) -> None:
        """Take the output of one engine step."""
        self._output.process(frame)

    def on_down(self, engine_id: str, reason: str) -> None:
        """End every request in the engine that is gone."""
        log.warning("engine %s is down: %s", engine_id, reason)
        self._meter.set_engine_up(engine_id, False)
        self._output.fail_all(EngineDied("The engine died while it worked on the request."), in_engine=False)

    def on_up(self, info: EngineInfo) -> None:
        """Take note that the engine takes requests again."""
        log.info("engine %s is up: %s on %s, %s", info.engine_id, info.model, info.device, info.dtype)
        self._meter.set_engine_up(info.engine_id, True)
        if self._input is not None:
            self._input = InputProcessor(self._tokenizer, info, self._limits)

    def _note_idle(self) -> None:
        self._meter.set_load(self.info.engine_id, 0, 0)
        self._idle.set()

    def _state(self, request: PreparedRequest) -> RequestState:
        engine_request = request.engine_request
        sampling = engine_request.sampling
        stop_token_ids = sampling.stop_token_ids + (() if sampling.ignore_eos else self.info.eos_token_ids)
        return RequestState(
            engine_request.id,
            TextStream(self._detokenizer(request), request.text, stop_token_ids),
            prompt_tokens=len(engine_request.prompt_token_ids),
            logprobs=engine_request.logprobs,
            stream=request.stream,
            meter=self._meter,
            arrival=request.arrival,
            names=request.names,
        )

    def _detokenizer(self, request: PreparedRequest) -> Detokenizer | None:
        if self._skip_tokenizer:
            return None
        prompt = request.engine_request.prompt_token_ids
        return detokenizer_of(self.tokenizer, prompt, skip_special=request.text.skip_special_tokens)


def detokenizer_of(tokenizer: TextTokenizer, prefix: Sequence[int] = (), *, skip_special: bool) -> Detokenizer:
    """A cursor for one sequence's text, by tables where the vocabulary allows it; `prefix` are the ids before."""
    vocabulary = tokenizer.vocabulary
    hidden = vocabulary.special if skip_special else frozenset()
    if vocabulary.exact:
        return TableDetokenizer(vocabulary, hidden=hidden)
    return WindowDetokenizer(tokenizer.backend, prefix, hidden=hidden)
