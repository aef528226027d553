"""One request inside the engine: how far its tokens are computed, and when it ends."""

from dataclasses import dataclass, field

from engines.local.sampling import SamplingState
from engines.protocol import EngineRequest, Finish, FinishKind

Key = tuple[bytes, str]


@dataclass(eq=False, slots=True)
class Sequence:
    """A request of `owner` (a gateway), waiting or in a slot.

    `computed` counts the tokens, of prompt and output, whose keys and values are in the slot.
    """

    owner: bytes
    request: EngineRequest
    sampling: SamplingState
    arrival: int
    slot: int = -1
    computed: int = 0
    cached: int = 0
    output_ids: list[int] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """What tells it from all others: two gateways may use the same id."""
        return self.owner, self.request.id

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.request.prompt_token_ids) + len(self.output_ids)

    @property
    def pending(self) -> int:
        """Tokens that are not computed yet: 1 while it decodes."""
        return self.length - self.computed

    @property
    def decoding(self) -> bool:
        """Whether the next step brings its next token and costs one."""
        return bool(self.output_ids) and self.pending == 1

    def tokens(self, count: int) -> list[int]:
        """The next `count` tokens to compute."""
        prompt = self.request.prompt_token_ids
        start = self.computed - len(prompt)
        if start >= 0:
            return self.output_ids[start : start + count]
        taken = prompt[self.computed : self.computed + count]
        return taken + self.output_ids[: count - len(taken)]

    def append(self, token: int, eos_token_ids: frozenset[int], max_model_len: int) -> Finish | None:
        """Add a sampled token and say whether it is the last one, and why."""
        self.output_ids.append(token)
        self.sampling.edits.record(token)
        params = self.request.sampling
        if token in eos_token_ids and not params.ignore_eos:
            return Finish(FinishKind.STOP)
        if token in params.stop_token_ids:
            return Finish(FinishKind.STOP, matched=token)
        if len(self.output_ids) >= params.max_tokens or self.length >= max_model_len:
            return Finish(FinishKind.LENGTH)
        return None
