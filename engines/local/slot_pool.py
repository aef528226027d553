"""Who computes in which slot, and what the free ones still hold: the prefix cache.

A sequence that ends leaves its keys and values behind. The next one begins with the longest prefix of its prompt that
any slot holds, free or in use: in place where the slot chosen for it holds it, by a copy otherwise. Prompts that begin
alike and come together are computed once: the later ones wait for the first. Free slots lose what they hold when they
are needed or when together they keep too many tokens, the one used longest ago first. Sequences with different
`cache_salt`s never see each other's prefixes.
"""

from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import Protocol

from engines.local.sequence import Sequence

WORTH_WAITING = 64


class SlotMemory(Protocol):
    """Keys and values by slot; `engines.local.runner.ModelRunner` has the real ones."""

    def release(self, slot: int) -> None:
        """Forget what a slot holds."""

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` tokens of `source`."""


@dataclass(frozen=True, slots=True)
class Content:
    """The tokens that a slot holds, and for whom."""

    token_ids: Rows[int] = field(default_factory=list)
    salt: str | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `length` tokens of a slot."""

    slot: int
    length: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A sequence that waits until `leader` has computed `length` tokens."""

    leader: Sequence
    length: int


class SlotPool:
    """The slots of `memory`; the free ones keep at most `kept_tokens` tokens together, of none if it is 0.

    A slot is free, taken by a sequence that has not begun (it still holds what it held), or begun.
    """

    def __init__(self, memory: SlotMemory, *, slots: int, kept_tokens: int) -> None:
        self._memory = memory
        self._kept_tokens = kept_tokens
        self._kept = 0
        self._free = OrderedDict((slot, Content()) for slot in range(slots))
        self._taken: dict[int, Content] = {}
        self._begun: dict[int, Sequence] = {}
        self._waits: dict[int, Wait] = {}

    @property
    def free(self) -> int:
        """Number of slots that nobody uses."""
        return len(self._free)

    @property
    def kept(self) -> int:
        """Tokens that free slots hold."""
        return self._kept

    def take(self, sequence: Sequence) -> None:
        """Give a sequence a slot, of which there must be one: if it can, one that holds little but its prefix."""
        found = max((self._match(sequence, *item) for item in self._free.items()), key=lambda prefix: prefix.length)
        held = len(self._free[found.slot].token_ids)
        sequence.slot = found.slot if found.length and 2 * found.length >= held else next(iter(self._free))
        content = self._free.pop(sequence.slot)
        self._kept -= len(content.token_ids)
        self._taken[sequence.slot] = content

    def has_begun(self, sequence: Sequence) -> bool:
        """Whether a sequence's slot is its own."""
        return self._begun.get(sequence.slot) is sequence

    def must_wait(self, sequence: Sequence) -> bool:
        """Whether one that has begun is about to compute much that this one, which has not, can take over."""
        wait = self._waits.pop(sequence.slot, None)
        if wait is None or not self.has_begun(wait.leader) or wait.leader.computed >= wait.length:
            wait = self._find_leader(sequence)
        if wait is not None:
            self._waits[sequence.slot] = wait
        return wait is not None

    def begin(self, sequence: Sequence) -> None:
        """Fill a sequence's slot with the longest prefix there is, and say in the sequence how long it is."""
        prefix = self._find_prefix(sequence)
        if prefix.slot != sequence.slot or not prefix.length:
            self._memory.release(sequence.slot)
        if prefix.slot != sequence.slot:
            self._memory.copy_prefix(prefix.slot, sequence.slot, prefix.length)
        del self._taken[sequence.slot]
        self._begun[sequence.slot] = sequence
        sequence.computed = sequence.cached = prefix.length

    def give_back(self, sequence: Sequence, *, keep: bool) -> None:
        """Free a sequence's slot, which keeps what it holds if it is sound and there is room for it."""
        slot = sequence.slot
        self._waits.pop(slot, None)
        content = self._taken.pop(slot, None)
        if content is None:
            del self._begun[slot]
            content = Content(sequence.held, sequence.request.cache_salt)
        if not keep or len(content.token_ids) > self._kept_tokens:
            content = Content()
        self._free[slot] = content
        self._kept += len(content.token_ids)
        if not content.token_ids:
            self._empty(slot)
        while self._kept > self._kept_tokens:
            self._empty(next(slot for slot, content in self._free.items() if content.token_ids))

    def _empty(self, slot: int) -> None:
        """Forget what a free slot holds and let it be the next one taken."""
        self._memory.release(slot)
        self._kept -= len(self._free[slot].token_ids)
        self._free[slot] = Content()
        self._free.move_to_end(slot, last=False)

    def _find_prefix(self, sequence: Sequence) -> Prefix:
        """The longest prefix that is there; in the sequence's own slot if that is as good as any."""
        best = self._match(sequence, sequence.slot, self._taken[sequence.slot])
        for slot, content in self._contents():
            if (found := self._match(sequence, slot, content)).length > best.length:
                best = found
        return best

    def _find_leader(self, sequence: Sequence) -> Wait | None:
        here = self._find_prefix(sequence).length
        for slot, leader in self._begun.items():
            prompt = Content(leader.request.prompt_token_ids, leader.request.cache_salt)
            coming = self._match(sequence, slot, prompt).length
            if coming >= max(here, leader.computed) + WORTH_WAITING:
                return Wait(leader, coming)
        return None

    def _contents(self) -> Iterator[tuple[int, Content]]:
        yield from self._free.items()
        yield from self._taken.items()
        for slot, sequence in self._begun.items():
            yield slot, Content(sequence.held, sequence.request.cache_salt)

    def _match(self, sequence: Sequence, slot: int, content: Content) -> Prefix:
        """What a sequence could take over of a slot's content."""
        if content.salt != sequence.request.cache_salt:
            return Prefix(slot, 0)
        prompt = sequence.request.prompt_token_ids
        return Prefix(slot, common_prefix(content.token_ids, prompt, sequence.reusable))


def common_prefix(one: Rows[int], other: Rows[int], limit: int) -> int:
    """How many ids two lists have in common from the first on, at most `limit`."""
    low, high = 0, min(len(one), len(other), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
