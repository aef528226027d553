"""One request inside the engine: how far its tokens are computed, and when it ends."""

from dataclasses import dataclass, field

from engines.local.sampling import SamplingState
from engines.protocol import EngineRequest, Finish, FinishKind

Key = tuple[bytes, str]

PIECE_POSITIONS = 256
CHOSEN_PER_TOKEN = 64
ALTERNATIVES_PER_TOKEN = 1024


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

    @property
    def generates(self) -> bool:
        """Whether tokens are wanted, not the prompt alone."""
        return self.request.sampling.max_tokens > 0

    @property
    def held(self) -> list[int]:
        """The tokens that are computed."""
        return (self.request.prompt_token_ids + self.output_ids)[: self.computed]

    @property
    def prompt_start(self) -> int | None:
        """The first prompt position whose logprobs are asked for, if any are."""
        return self.request.logprobs.prompt_start if self.request.logprobs is not None else None

    @property
    def reusable(self) -> int:
        """Tokens that may be taken over from another sequence: where logprobs are asked for, all are computed."""
        last = len(self.request.prompt_token_ids) - 1
        return last if self.prompt_start is None else min(self.prompt_start, last)

    def scored(self, count: int) -> range:
        """Positions among the next `count` whose logits give an asked logprob of the prompt: of the token after."""
        last = len(self.request.prompt_token_ids) - 1
        first = last if self.prompt_start is None else self.prompt_start
        return range(max(self.computed, first), min(self.computed + count, last))

    def cost(self, count: int) -> int:
        """What the next `count` tokens take, in tokens of a prompt without logprobs."""
        return count + self._score_cost * len(self.scored(count))

    def affordable(self, budget: int) -> int:
        """How many tokens of the prompt to compute for a cost of `budget`, which the first one may exceed.

        Logprobs of at most PIECE_POSITIONS positions come of them.
        """
        plain = len(range(self.computed, self.scored(self.pending).start))
        if budget <= plain or not self.scored(self.pending):
            return min(budget, self.pending)
        scored = min((budget - plain) // (1 + self._score_cost), PIECE_POSITIONS - 1)
        return min(max(plain + scored, 1), self.pending)

    @property
    def _score_cost(self) -> int:
        """What the logprobs of a position cost, rounded up: the head and a few passes over the vocabulary's logits."""
        wishes = self.request.logprobs
        if wishes is None:
            return 0
        return 1 + len(wishes.token_ids) // CHOSEN_PER_TOKEN + wishes.top_k // ALTERNATIVES_PER_TOKEN

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
