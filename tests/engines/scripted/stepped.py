"""A scripted engine that tests step by hand."""

from collections.abc import Iterable

from engines.protocol import EngineRequest, LogprobParams, SamplingParams
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script
from tests.engines.recorder import Answer, FrameRecorder

OPTIONS = ScriptedOptions(tokenizer="none", vocab_size=500, max_model_len=5000)


class SteppedEngine:
    """The engine, its recorder, and short ways to ask."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.recorder = FrameRecorder()

    @classmethod
    async def start(
        cls, scripts: Iterable[Script] | None = None, options: ScriptedOptions = OPTIONS
    ) -> "SteppedEngine":
        """Start an engine that gives its requests these scripts, in order."""
        order = None if scripts is None else iter(scripts)
        engine = ScriptedEngine(options, script_for=None if order is None else lambda _: next(order))
        stepped = cls(engine)
        await engine.start(stepped.recorder)
        return stepped

    def submit(
        self,
        request_id: str,
        max_tokens: int = 1000,
        logprobs: LogprobParams | None = None,
        *,
        prompt: int = 4,
        priority: int = 0,
        return_hidden_states: bool = False,
        continues: int = 0,
    ) -> None:
        """Submit a request."""
        self.engine.submit(
            EngineRequest(
                id=request_id,
                prompt_token_ids=list(range(1, prompt + 1)),
                sampling=SamplingParams(max_tokens=max_tokens),
                logprobs=logprobs,
                priority=priority,
                return_hidden_states=return_hidden_states,
                continues=continues,
            )
        )

    def step(self, count: int = 1) -> None:
        """Step so many times."""
        for _ in range(count):
            self.engine.step()

    def run(self) -> None:
        """Step until nothing has anything to send."""
        while self.engine.step():
            pass

    def answer(self, request_id: str) -> Answer:
        """What a request received."""
        return self.recorder.answer(request_id)

    def totals(self, request_id: str) -> list[int]:
        """The completion_tokens of a request's rows."""
        return [row.completion_tokens for row in self.recorder.rows[request_id]]
