"""The scripted engine: an engine client without a model, whose every frame is dictated.

It is the base of tests, benchmarks and demonstrations: nothing in it is random, and it lives on the gateway's loop.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engines.errors import EngineUnavailable, Overloaded
from engines.protocol import (
    EngineInfo,
    EngineListener,
    EngineRequest,
    EngineState,
    Frame,
    LogprobParams,
)
from engines.scripted.default_script import default_script
from engines.scripted.faults import Death, Failure, Stall
from engines.scripted.frames import frames_of
from engines.scripted.options import ScriptedOptions
from engines.scripted.pacer import Pacer
from engines.scripted.script import Script, load_scripts
from engines.scripted.script_logprobs import ScriptLogprobs
from engines.scripted.sequence import Row, ScriptedSequence
from engines.scripted.slots import Slots
from engines.scripted.token_frame import Header

log = logging.getLogger("tailrace.scripted")

_CACHED_LOGPROBS = 64

ScriptSource = Callable[[EngineRequest], Script]


class ScriptedEngine:
    """An EngineClient that sends what scripts say.

    `script_for` gives each request its script; without it they come from the options. With `step_ms` None nothing
    happens until `step` is called; else the engine steps by itself. What it was asked is kept in order: `submitted`,
    and `aborted` with every id as often as an abort named it.
    """

    def __init__(
        self, options: ScriptedOptions, *, engine_id: str = "scripted", script_for: ScriptSource | None = None
    ) -> None:
        self.options = options
        self.submitted: list[EngineRequest] = []
        self.aborted: list[str] = []
        self._engine_id = engine_id
        self._script_for = script_for or _scripts_of(options)
        self._state = EngineState.STARTING
        self._info: EngineInfo | None = None
        self._listener: EngineListener | None = None
        self._slots = Slots(options.max_running, options.queue_limit)
        self._refused: list[ScriptedSequence] = []
        self._logprobs: dict[tuple[int, int, tuple[int, ...]], ScriptLogprobs] = {}
        self._steps = 0
        self._released = asyncio.Event()
        self._released.set()
        self._pacer: Pacer | None = None
        self._drive: asyncio.Task[None] | None = None

    @property
    def state(self) -> EngineState:
        """Whether requests are taken now."""
        return self._state

    @property
    def info(self) -> EngineInfo:
        """What the engine says of itself; EngineUnavailable before it first was ready."""
        if self._info is None:
            raise EngineUnavailable("The engine is starting.", retry_after=1)
        return self._info

    @property
    def running(self) -> int:
        """Requests that get rows."""
        return len(self._slots.running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._slots.live) - len(self._slots.running)

    @property
    def live(self) -> list[str]:
        """Ids of all requests in the engine, in the order of submission."""
        return list(self._slots.live)

    async def start(self, listener: EngineListener) -> None:
        """Be ready at once, or, if held, after the release."""
        self._listener = listener
        await self._released.wait()
        options = self.options
        self._info = EngineInfo(
            engine_id=self._engine_id,
            model=options.model,
            tokenizer=options.tokenizer,
            max_model_len=options.max_model_len,
            vocab_size=options.vocab_size,
            eos_token_ids=options.eos_token_ids,
            capabilities=options.capabilities,
            device="none",
            dtype="none",
            weight_version=options.weight_version,
        )
        if options.step_ms is not None:
            self._pacer = Pacer(lambda: bool(self.step()), options.step_ms / 1000)
            self._drive = asyncio.get_running_loop().create_task(self._run(self._pacer))
        self._state = EngineState.READY
        listener.on_up(self._info)

    def submit(self, request: EngineRequest) -> None:
        """Take a request. EngineUnavailable unless ready; ValueError for the id of one that is in the engine."""
        if self._state is not EngineState.READY:
            raise EngineUnavailable(f"Engine {self._engine_id} is {self._state.value}.", retry_after=1)
        if request.id in self._slots.live:
            raise ValueError(f"request {request.id} is already in the engine")
        self.submitted.append(request)
        sequence = self._sequence(request)
        if not self._slots.enter(sequence):
            self._refused.append(sequence)
        self._wake()

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests at once, as far as their scripts obey."""
        self.aborted += request_ids
        for request_id in request_ids:
            self._refused = [sequence for sequence in self._refused if sequence.id != request_id]
            sequence = self._slots.running.get(request_id)
            if sequence is None or sequence.obeys_abort():
                self._slots.leave(request_id)
        self._wake()

    async def close(self) -> None:
        """Stop; what is in the engine is lost."""
        self._state = EngineState.DOWN
        self._forget()
        if self._drive is not None:
            self._drive.cancel()
            await asyncio.wait([self._drive])
            self._drive = None

    def step(self) -> list[Frame]:
        """Send the next row of every running request and return the frames that were sent.

        It is one frame, unless the options or different kinds of output spread the rows over several, and none if no
        request has a row, or the engine is held or down.
        """
        if self._state is not EngineState.READY or not self._released.is_set():
            return []
        rows = self._rows()
        if not rows:
            return []
        for row in rows:
            if row.finish is not None or row.sequence.used_last_row():
                self._slots.leave(row.sequence.id)
        self._steps += 1
        frames = frames_of(rows, self._header(), self.options.rows_per_frame)
        for frame in frames:
            self.deliver(frame)
        return frames

    def _rows(self) -> list[Row]:
        """The rows of one step; none if a script brings the engine down."""
        rows = [sequence.fail(Overloaded.code, "The engine's queue is full.") for sequence in self._refused]
        self._refused = []
        now = asyncio.get_running_loop().time() if self._pacer is not None else 0.0
        for sequence in self._slots.running.values():
            if sequence.held or sequence.ready_at > now:
                continue
            match sequence.take_fault():
                case None:
                    row = sequence.advance()
                case Stall():
                    sequence.held = True
                    continue
                case Death(reason=reason):
                    self.kill(reason)
                    return []
                case Failure(code=code, message=message):
                    row = sequence.fail(code, message)
            rows.append(row)
        return rows

    def deliver(self, frame: Frame) -> None:
        """Hand a frame to the listener, one of the engine's own or a made-up one."""
        assert self._listener is not None
        self._listener.on_frame(frame)

    def hold(self, request_id: str | None = None) -> None:
        """Send nothing more, or nothing more of one request. KeyError for one that is not in the engine."""
        if request_id is None:
            self._released.clear()
        else:
            self._slots.live[request_id].held = True

    def release(self, request_id: str | None = None) -> None:
        """Undo `hold`; for a request, also a stall in its script."""
        if request_id is None:
            self._released.set()
        else:
            self._slots.live[request_id].held = False
        self._wake()

    def kill(self, reason: str) -> None:
        """Go down, as by a crash: every request is lost and the listener is told."""
        self._state = EngineState.DOWN
        self._forget()
        assert self._listener is not None
        self._listener.on_down(self._engine_id, reason)

    def revive(self) -> None:
        """Be ready again after `kill`, with nothing in it."""
        self._state = EngineState.READY
        assert self._listener is not None
        self._listener.on_up(self.info)

    def _sequence(self, request: EngineRequest) -> ScriptedSequence:
        options, script = self.options, self._script_for(request)
        ready_at = 0.0
        if self._pacer is not None and options.first_token_ms:
            loop = asyncio.get_running_loop()
            ready_at = loop.time() + options.first_token_ms / 1000
            loop.call_at(ready_at, self._pacer.wake)
        return ScriptedSequence(
            request,
            script,
            self._logprobs_of(script, request.logprobs) if request.logprobs is not None else None,
            eos_token_ids=options.eos_token_ids,
            max_model_len=options.max_model_len,
            ready_at=ready_at,
        )

    def _logprobs_of(self, script: Script, wishes: LogprobParams) -> ScriptLogprobs:
        key = (id(script), wishes.top_k, wishes.token_ids)
        logprobs = self._logprobs.get(key)
        if logprobs is None:
            if len(self._logprobs) >= _CACHED_LOGPROBS:
                self._logprobs.clear()
            logprobs = self._logprobs[key] = ScriptLogprobs(script, wishes, self.options.vocab_size)
        return logprobs

    def _header(self) -> Header:
        return Header(
            engine_id=self._engine_id,
            timestamp=time.monotonic(),
            step=self._steps,
            running=self.running,
            waiting=self.waiting,
            weight_version=self.options.weight_version,
        )

    def _wake(self) -> None:
        if self._pacer is not None:
            self._pacer.wake()

    def _forget(self) -> None:
        self._slots.clear()
        self._refused = []

    async def _run(self, pacer: Pacer) -> None:
        """Drive the engine; whatever breaks a step takes it down, as it would a real one."""
        try:
            await pacer.run()
        except Exception as error:
            log.exception("engine %s broke", self._engine_id)
            self.kill(f"{type(error).__name__}: {error}")


def _scripts_of(options: ScriptedOptions) -> ScriptSource:
    if options.script_file is None:
        script = default_script(options)
        return lambda _: script
    scripts = itertools.cycle(load_scripts(Path(options.script_file)))
    return lambda _: next(scripts)
