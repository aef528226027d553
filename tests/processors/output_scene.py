"""An output processor with live requests, fed frames by hand."""

import time
from typing import Any

from engines.protocol import LogprobParams
from processors.delta import Delta
from processors.detokenizer import TableDetokenizer
from processors.output import OutputProcessor
from processors.state import RequestState
from processors.text import TextParams, TextStream
from processors.vocabulary import Vocabulary
from tests.processors import toy_tokenizers
from tests.processors.recording_meter import RecordingMeter

VOCABULARY = Vocabulary(toy_tokenizers.byte_level())


class OutputScene:
    """`aborts`: each call that told the engine; `idle`: how often the table became empty."""

    def __init__(self) -> None:
        self.meter = RecordingMeter()
        self.aborts: list[list[str]] = []
        self.idle = 0
        self.output = OutputProcessor(self.meter, self.aborts.append)
        self.output.on_idle = self._count_idle
        self.states: dict[str, RequestState] = {}

    def _count_idle(self) -> None:
        self.idle += 1

    def enter(self, request_id: str, *, logprobs: LogprobParams | None = None, **text: Any) -> RequestState:
        """Make a request live; `text` are its TextParams."""
        params = TextParams(**text)
        hidden = VOCABULARY.special if params.skip_special_tokens else frozenset[int]()
        state = RequestState(
            request_id,
            TextStream(TableDetokenizer(VOCABULARY, hidden=hidden), params),
            prompt_tokens=3,
            logprobs=logprobs,
            stream=True,
            meter=self.meter,
            arrival=time.monotonic(),
        )
        self.states[request_id] = state
        self.output.add(state)
        return state

    async def take(self, request_id: str) -> Delta:
        """All that is pending of a request; raises its error if there is nothing before it."""
        return await self.states[request_id].collector.get()
