"""Who is computed in which step: continuous batching with prompts prefilled in pieces.

Every running row is in every step. Beside them, prompts are computed up to a budget, in order of admission; logprobs
of prompts and copies of cached prefixes count in it too. Waiting requests get slots by priority, lower first, then by
arrival.
"""

import heapq
from dataclasses import dataclass

from engines.local.sequence import Key, Sequence
from engines.local.slot_pool import SlotPool

LEFT_IN_QUEUE = 64
COPIES_PER_TOKEN = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` tokens of a sequence to compute in one step."""

    sequence: Sequence
    count: int

    @property
    def completes(self) -> bool:
        """Whether the sequence's next token follows from it."""
        return self.count == self.sequence.pending


class Scheduler:
    """Sequences waiting and running, and the slots between them. `prefill_tokens`: the budget of a step."""

    def __init__(self, pool: SlotPool, *, queue_limit: int, prefill_tokens: int) -> None:
        self._pool = pool
        self._queue_limit = queue_limit
        self._prefill_tokens = prefill_tokens
        self._queue: list[tuple[int, int, Key]] = []
        self._waiting: dict[Key, Sequence] = {}
        self._running: dict[Key, Sequence] = {}

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in slots."""
        return len(self._running)

    @property
    def full(self) -> bool:
        """Whether the next request would exceed the queue's limit."""
        return len(self._waiting) >= self._queue_limit + self._pool.free

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting or key in self._running

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._waiting[sequence.key] = sequence
        heapq.heappush(self._queue, (sequence.request.priority, sequence.arrival, sequence.key))

    def remove(self, key: Key, *, keep: bool = True) -> Sequence | None:
        """Take a sequence out, wherever it is; its slot is free again. None if it isn't here.

        `keep`: what it computed is sound and may serve others.
        """
        if (waiting := self._waiting.pop(key, None)) is not None:
            self._forget_removed()
            return waiting
        if (running := self._running.pop(key, None)) is not None:
            self._pool.give_back(running, keep=keep)
        return running

    def keys_of(self, owner: bytes) -> list[Key]:
        """Keys of all sequences of a gateway."""
        return [key for key in [*self._waiting, *self._running] if key[0] == owner]

    def in_slots(self) -> list[Sequence]:
        """Sequences that are admitted, in that order."""
        return list(self._running.values())

    def plan(self) -> list[Piece]:
        """Admit who can be and share out the next step: decoding rows first, then pieces of prompts."""
        self._admit()
        pieces = [Piece(sequence, 1) for sequence in self._running.values() if sequence.decoding]
        budget = self._prefill_tokens
        for sequence in self._running.values():
            if budget <= 0:
                break
            if sequence.decoding:
                continue
            if not self._pool.has_begun(sequence):
                if self._pool.must_wait(sequence):
                    continue
                self._pool.begin(sequence)
                budget -= sequence.cached // COPIES_PER_TOKEN
            count = sequence.affordable(max(budget, 1))
            pieces.append(Piece(sequence, count))
            budget -= sequence.cost(count)
        return pieces

    def _admit(self) -> None:
        while self._pool.free and self._queue:
            _, arrival, key = heapq.heappop(self._queue)
            sequence = self._waiting.get(key)
            if sequence is not None and sequence.arrival == arrival:
                del self._waiting[key]
                self._pool.take(sequence)
                self._running[key] = sequence

    def _forget_removed(self) -> None:
        """Rid the queue of the sequences that left it, once they are most of it."""
        if len(self._queue) > 2 * len(self._waiting) + LEFT_IN_QUEUE:
            here = {sequence.arrival for sequence in self._waiting.values()}
            self._queue = [entry for entry in self._queue if entry[1] in here]
            heapq.heapify(self._queue)
