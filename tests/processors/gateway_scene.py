"""A gateway on the scripted engine, stepped by hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from engines.protocol import EngineRequest
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script
from processors.collector import Collector
from processors.delta import Delta
from processors.gateway import Gateway
from processors.limits import Limits
from processors.request import GenerationRequest, PreparedRequest, SamplingWishes, TokenPrompt
from tests.processors.recording_meter import RecordingMeter

GUARD = 10.0
EOS = 256


class GatewayScene:
    """`scripts` are handed to requests in turn, the last one again and again; `options` are the engine's."""

    def __init__(
        self,
        tokenizer: Path,
        scripts: Sequence[Script],
        *,
        limits: Limits | None = None,
        skip_tokenizer: bool = False,
        **options: Any,
    ) -> None:
        self._scripts = list(scripts)
        defaults: dict[str, Any] = {
            "max_model_len": 1024,
            "vocab_size": 300,
            "eos_token_ids": (EOS,),
            "tokenizer": str(tokenizer),
        }
        self.engine = ScriptedEngine(ScriptedOptions(**(defaults | options)), script_for=self._script_for)
        self.meter = RecordingMeter()
        self.gateway = Gateway(self.engine, meter=self.meter, limits=limits, skip_tokenizer=skip_tokenizer)

    def _script_for(self, request: EngineRequest) -> Script:
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    async def prepare(
        self, prompt: Sequence[int] = (1, 2, 3), *, max_tokens: int = 100, **fields: Any
    ) -> PreparedRequest:
        """A request for at most `max_tokens` tokens."""
        request = GenerationRequest(
            prompt=TokenPrompt(list(prompt)), sampling=SamplingWishes(max_tokens=max_tokens), **fields
        )
        return await self.gateway.input.prepare(request)

    async def finish(self, collector: Collector) -> Delta:
        """Step the engine until nothing runs in it, and return the request's whole answer."""
        while self.engine.running:
            self.engine.step()
        async with asyncio.timeout(GUARD):
            return await collector.whole()

    async def answer(self, prompt: Sequence[int] = (1, 2, 3), **fields: Any) -> Delta:
        """Ask and step to the end."""
        async with self.gateway.open([await self.prepare(prompt, **fields)]) as [collector]:
            return await self.finish(collector)


@contextlib.asynccontextmanager
async def started(tokenizer: Path, *scripts: Script, **options: Any) -> AsyncIterator[GatewayScene]:
    """A gateway whose engine is ready; closed in the end."""
    scene = GatewayScene(tokenizer, scripts, **options)
    await scene.gateway.start()
    try:
        yield scene
    finally:
        await scene.gateway.close()
