"""An engine core over a tiny random model, stepped by hand."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from engines.local.engine_core import EngineCore
from engines.local.runner import ModelRunner, Span
from engines.local.scheduler import Scheduler
from engines.local.slot_pool import SlotPool
from engines.local.step_output import StepOutput
from engines.protocol import EngineRequest, Finish
from tests.engines.local.tiny_models import CONTEXT, VOCABULARY, loaded, plain_logits, tiny_config, tiny_model

MODEL = tiny_model(tiny_config())
PLAIN = tiny_model(tiny_config(), "sdpa")
PROMPTS = [[(7 * row + 3 * place) % VOCABULARY for place in range(1, 4 + 5 * row)] for row in range(8)]
A, B = b"a", b"b"


class FaultyRunner(ModelRunner):
    """The real runner, which raises or gives NaN when told to.

    It knows which slots hold anything, how many tokens it ran, and for how many rows it was asked for logits each time.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(loaded(MODEL), slots=slots, max_model_len=CONTEXT)
        self.held: set[int] = set()
        self.raises = False
        self.poisoned: list[int] = []
        self.ran = 0
        self.logits_rows: list[int] = []

    def hidden_states(self, spans: Sequence[Span]) -> torch.Tensor:
        if self.raises:
            raise RuntimeError("a kernel failed")
        self.held |= {span.slot for span in spans}
        self.ran += sum(len(span.token_ids) for span in spans)
        return super().hidden_states(spans)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = super().logits(hidden)
        self.logits_rows.append(len(logits))
        logits[self.poisoned] = torch.nan
        return logits

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        if self.raises:
            raise RuntimeError("no memory for a copy")
        super().copy_prefix(source, target, length)
        self.held.add(target)

    def release(self, slot: int) -> None:
        self.held.discard(slot)
        super().release(slot)


class Bench:
    """A core, and what it has put out by owner and id."""

    def __init__(
        self, *, slots: int = 8, queue_limit: int = 100, prefill_tokens: int = 16, kept_tokens: int = 0
    ) -> None:
        self.runner = FaultyRunner(slots)
        self.pool = SlotPool(self.runner, slots=slots, kept_tokens=kept_tokens)
        self.core = EngineCore(
            self.runner,
            Scheduler(self.pool, queue_limit=queue_limit, prefill_tokens=prefill_tokens),
            vocab_size=VOCABULARY,
            max_model_len=CONTEXT,
            eos_token_ids=[0],
            device=torch.device("cpu"),
        )
        self.rows: dict[tuple[bytes, str], list[StepOutput]] = defaultdict(list)

    def step(self) -> list[StepOutput]:
        outputs = self.core.step()
        for output in outputs:
            self.rows[output.owner, output.request_id].append(output)
        return outputs

    def run(self, *requests: EngineRequest, owner: bytes = A) -> None:
        for request in requests:
            self.core.submit(owner, request)
        while self.core.busy:
            self.step()

    def tokens(self, request_id: str, owner: bytes = A) -> list[int]:
        return [row.token for row in self.rows[owner, request_id] if row.token is not None]

    def finish(self, request_id: str, owner: bytes = A) -> Finish | None:
        return self.rows[owner, request_id][-1].finish


def generated(prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(plain_logits(PLAIN, ids)[-1].argmax()))
    return ids[len(prompt) :]
