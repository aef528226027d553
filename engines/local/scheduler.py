"""Who is computed in which step: continuous batching with prompts prefilled in pieces.

Every running row is in every step; what is left of the step's budget goes to prompts, in order of admission. Waiting
requests get slots by priority, lower first, then by arrival.
"""

import heapq
from dataclasses import dataclass

from engines.local.sequence import Key, Sequence

LEFT_IN_QUEUE = 64


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
    """Sequences waiting and running, and the slots between them."""

    def __init__(self, *, slots: int, queue_limit: int, prefill_tokens: int) -> None:
        self._queue_limit = queue_limit
        self._prefill_tokens = prefill_tokens
        self._free = list(range(slots))
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
        return len(self._waiting) >= self._queue_limit + len(self._free)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting or key in self._running

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._waiting[sequence.key] = sequence
        heapq.heappush(self._queue, (sequence.request.priority, sequence.arrival, sequence.key))

    def remove(self, key: Key) -> Sequence | None:
        """Take a sequence out, wherever it is; its slot is free again. None if it isn't here."""
        if (waiting := self._waiting.pop(key, None)) is not None:
            self._forget_removed()
            return waiting
        if (running := self._running.pop(key, None)) is not None:
            heapq.heappush(self._free, running.slot)
        return running

    def keys_of(self, owner: bytes) -> list[Key]:
        """Keys of all sequences of a gateway."""
        return [key for key in [*self._waiting, *self._running] if key[0] == owner]

    def plan(self) -> list[Piece]:
        """Admit who can be and share out the next step: decoding rows first, then pieces of prompts."""
        self._admit()
        decoding = [Piece(sequence, 1) for sequence in self._running.values() if sequence.decoding]
        pieces, budget = decoding, self._prefill_tokens
        for sequence in self._running.values():
            if budget and not sequence.decoding:
                pieces.append(Piece(sequence, min(budget, sequence.pending)))
                budget -= pieces[-1].count
        return pieces

    def _admit(self) -> None:
        while self._free and self._queue:
            _, arrival, key = heapq.heappop(self._queue)
            sequence = self._waiting.get(key)
            if sequence is not None and sequence.arrival == arrival:
                del self._waiting[key]
                sequence.slot = heapq.heappop(self._free)
                self._running[key] = sequence

    def _forget_removed(self) -> None:
        """Rid the queue of the sequences that left it, once they are most of it."""
        if len(self._queue) > 2 * len(self._waiting) + LEFT_IN_QUEUE:
            here = {sequence.arrival for sequence in self._waiting.values()}
            self._queue = [entry for entry in self._queue if entry[1] in here]
            heapq.heapify(self._queue)
