"""An engine under test with the listener that hears it."""

import itertools
from typing import Any

import msgspec

from engines.protocol import EngineClient, EngineRequest, LogprobParams, SamplingParams
from tests.engines.recorder import Answer, FrameRecorder

_numbers = itertools.count()


class StartedEngine:
    """Asks an engine for greedy output that end-of-sequence ids don't end, under ids that are never used again."""

    def __init__(self, client: EngineClient, recorder: FrameRecorder) -> None:
        self.client = client
        self.recorder = recorder

    @classmethod
    async def start(cls, client: EngineClient) -> "StartedEngine":
        """Start an engine with a recorder."""
        recorder = FrameRecorder()
        await client.start(recorder)
        return cls(client, recorder)

    @property
    def room(self) -> int:
        """Many tokens: what fits beside a short prompt, 4096 at most."""
        return min(4096, self.client.info.max_model_len - 16)

    def prompt(self, length: int) -> list[int]:
        """Some ids of the engine's vocabulary."""
        size = self.client.info.vocab_size
        return [(size // 3 + 7 * place) % size for place in range(length)]

    def submit(
        self, max_tokens: int, logprobs: LogprobParams | None = None, *, prompt: int = 8, **sampling: Any
    ) -> str:
        """Submit a request with a prompt of this length; returns its id. `sampling`: further SamplingParams fields."""
        greedy = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = EngineRequest(
            id=f"request-{next(_numbers)}",
            prompt_token_ids=self.prompt(prompt),
            sampling=msgspec.structs.replace(greedy, **sampling),
            logprobs=logprobs,
        )
        self.client.submit(request)
        return request.id

    async def ask(
        self, max_tokens: int, logprobs: LogprobParams | None = None, *, prompt: int = 8, **sampling: Any
    ) -> Answer:
        """Submit, wait for the end and return all that came."""
        request_id = self.submit(max_tokens, logprobs, prompt=prompt, **sampling)
        await self.recorder.finish(request_id)
        return self.recorder.answer(request_id)
