import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engines.local.cache import CacheShape, SlotCache

SHAPE = CacheShape(layers=2, kv_heads=2, key_size=3, value_size=4)
SLOTS, MAX_LENGTH, SMALLEST = 5, 40, 4


def new_cache() -> SlotCache:
    return SlotCache(
        SHAPE,
        slots=SLOTS,
        max_length=MAX_LENGTH,
        dtype=torch.float32,
        device=torch.device("cpu"),
        smallest=SMALLEST,
    )


class CacheAgainstLists(RuleBasedStateMachine):
    """The cache holds what a plain list of numbers per slot holds, whatever is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = new_cache()
        self.model: dict[int, list[float]] = {}
        self.next_mark = 1.0

    @rule(slot=st.integers(0, SLOTS - 1), start=st.integers(0, MAX_LENGTH), count=st.integers(1, 12))
    def write(self, slot: int, start: int, count: int) -> None:
        held = self.model.get(slot, [])
        start = min(start, len(held), MAX_LENGTH - count)
        self.cache.make_room(slot, start + count)
        self.cache.set_filled(slot, start + count)
        place = self.cache.place(slot)
        marks = [self.next_mark + index for index in range(count)]
        self.next_mark += count
        for layer in range(SHAPE.layers):
            for tensors in (place.size_class.keys, place.size_class.values):
                target = tensors[layer][place.row, :, start : start + count]
                target[:] = torch.tensor(marks)[None, :, None]
        self.model[slot] = held[:start] + marks

    @rule(slot=st.integers(0, SLOTS - 1))
    def release(self, slot: int) -> None:
        self.cache.release(slot)
        self.model.pop(slot, None)

    @precondition(lambda self: self.model)
    @rule(source=st.integers(0, SLOTS - 1), into=st.integers(0, SLOTS - 1), length=st.integers(1, MAX_LENGTH))
    def copy_prefix(self, source: int, into: int, length: int) -> None:
        held = self.model.get(source, [])
        if length > len(held):
            with pytest.raises(ValueError, match="holds"):
                self.cache.copy_prefix(source, into, length)
        else:
            self.cache.copy_prefix(source, into, length)
            self.model[into] = held[:length]

    @invariant()
    def contents_agree_and_the_rest_is_zero(self) -> None:
        for slot in range(SLOTS):
            held = self.model.get(slot, [])
            assert self.cache.filled(slot) == len(held)
            if slot in self.model:
                place = self.cache.place(slot)
                expected = torch.tensor(held + [0.0] * (place.size_class.length - len(held)))
                for tensor in (*place.size_class.keys, *place.size_class.values):
                    assert torch.equal(tensor[place.row], expected[None, :, None].expand_as(tensor[place.row]))

    @invariant()
    def rows_are_dense_and_memory_is_bounded(self) -> None:
        classes = {id(place.size_class): place.size_class for place in map(self.cache.place, self.model)}
        for size_class in classes.values():
            used = len(size_class.slots)
            rows = sorted(self.cache.place(slot).row for slot in size_class.slots)
            assert rows == list(range(used))
            assert used <= size_class.rows <= max(4 * used, 1)
            assert not any(tensor[used:].any() for tensor in (*size_class.keys, *size_class.values))
        held = sum(size_class.rows * size_class.length for size_class in classes.values())
        assert self.cache.allocated_bytes == held * SHAPE.bytes_per_token(torch.float32)


CacheAgainstLists.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCacheAgainstLists = CacheAgainstLists.TestCase


def test_room_beyond_the_bounds_is_refused() -> None:
    cache = new_cache()
    with pytest.raises(ValueError, match="slot 5 of 5"):
        cache.make_room(SLOTS, 1)
    with pytest.raises(ValueError, match="exceed"):
        cache.make_room(0, MAX_LENGTH + 1)


def test_bytes_of_a_token() -> None:
    assert SHAPE.bytes_per_token(torch.bfloat16) == 2 * 2 * (3 + 4) * 2
