"""The memory of slots with token ids in place of their keys and values, and a scheduler over it."""

from collections import defaultdict

from engines.local.scheduler import Piece, Scheduler
from engines.local.slot_pool import SlotPool


class SlotLedger:
    """A SlotMemory that refuses what the real one can't do; `copied` counts tokens."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.copied = 0

    def release(self, slot: int) -> None:
        self.tokens.pop(slot, None)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        assert source != target
        assert length <= len(self.tokens[source])
        self.tokens[target] = self.tokens[source][:length]
        self.copied += length

    def write(self, slot: int, start: int, token_ids: list[int]) -> None:
        """As a step does: what the slot held from `start` on is replaced."""
        assert start <= len(self.tokens[slot])
        self.tokens[slot] = self.tokens[slot][:start] + token_ids


class PlannedEngine:
    """A scheduler whose steps write token ids and always sample `sampled`."""

    def __init__(
        self, *, slots: int, queue_limit: int = 100, prefill_tokens: int = 10, kept_tokens: int = 0, sampled: int = 9
    ) -> None:
        self.ledger = SlotLedger()
        self.pool = SlotPool(self.ledger, slots=slots, kept_tokens=kept_tokens)
        self.scheduler = Scheduler(self.pool, queue_limit=queue_limit, prefill_tokens=prefill_tokens)
        self.sampled = sampled

    def step(self) -> list[Piece]:
        """Plan a step and do as if it were computed; every slot must hold what its sequence says."""
        pieces = self.scheduler.plan()
        for piece in pieces:
            sequence = piece.sequence
            assert self.ledger.tokens[sequence.slot][: sequence.computed] == sequence.held
            self.ledger.write(sequence.slot, sequence.computed, sequence.tokens(piece.count))
            complete = piece.completes
            sequence.computed += piece.count
            if complete:
                sequence.append(self.sampled, frozenset(), 10_000)
        return pieces

    def run_until_decoding(self) -> list[list[tuple[str, int]]]:
        """Step until every sequence decodes; the pieces of each step as (id, count)."""
        steps = []
        while not all(sequence.decoding for sequence in self.scheduler.in_slots()) or self.scheduler.waiting:
            steps.append([(piece.sequence.request.id, piece.count) for piece in self.step()])
        return steps
