"""Keys and values of the sequences in flight, in slots of growing length.

A slot lives in a block of its size class: all slots of a class lie densely in one tensor, so that decoding rows are one
slice and one attention call, cut to the longest of them. A sequence that outgrows its class moves to the next, twice as
long; a class doubles its rows when full, and is dropped when empty. So memory follows the tokens held (at most four
times them, and pages never written cost nothing on Linux) instead of slots x context length, and short sequences are
never padded to the longest one. Paging would bound it tighter, but needs a gather, which on a CPU costs as much as the
attention itself.

What lies past a slot's filled length is zero, always: padding must be finite, because 0 x NaN is NaN, and nobody's
text stays behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

SMALLEST_LENGTH = 256


@dataclass(frozen=True)
class CacheShape:
    """What one token takes: `layers` times `kv_heads` keys of `key_size` and values of `value_size` numbers."""

    layers: int
    kv_heads: int
    key_size: int
    value_size: int

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of keys and values of one token."""
        return self.layers * self.kv_heads * (self.key_size + self.value_size) * dtype.itemsize


class SizeClass:
    """Slots of up to `length` tokens. `keys[layer]`: [rows, kv heads, length, key size], `values` alike.

    Used rows are the first ones, always: `slots` names the slot of each, `filled` its number of tokens.
    """

    def __init__(self, shape: CacheShape, length: int, dtype: torch.dtype, device: torch.device) -> None:
        self.length = length
        self.slots: list[int] = []
        self.filled: list[int] = []
        self.keys, self.values = (
            [torch.zeros(0, shape.kv_heads, length, size, dtype=dtype, device=device) for _ in range(shape.layers)]
            for size in (shape.key_size, shape.value_size)
        )

    @property
    def rows(self) -> int:
        """Rows that memory is held for."""
        return self.keys[0].shape[0]

    def add(self, slot: int, most: int) -> int:
        """Give `slot` an empty row; `most` bounds the rows ever needed."""
        if len(self.slots) == self.rows:
            self._resize(min(max(1, 2 * self.rows), most))
        self.slots.append(slot)
        self.filled.append(0)
        return len(self.slots) - 1

    def remove(self, row: int) -> int:
        """Free `row`: the last used row moves there. Returns the slot that lies in `row` now, if it is still used."""
        last = len(self.slots) - 1
        if row != last:
            self.set_filled(row, min(self.filled[row], self.filled[last]))
            self.copy_from(self, last, row, self.filled[last])
            self.slots[row], self.filled[row] = self.slots[last], self.filled[last]
        self.set_filled(last, 0)
        self.filled.pop()
        moved = self.slots.pop()
        if len(self.slots) <= self.rows // 4:
            self._resize(self.rows // 2)
        return moved

    def set_filled(self, row: int, length: int) -> None:
        """Say that `row` holds `length` tokens now, and forget what lies past them."""
        if self.filled[row] > length:
            for tensor in (*self.keys, *self.values):
                tensor[row, :, length : self.filled[row]] = 0
        self.filled[row] = length

    def copy_from(self, source: "SizeClass", source_row: int, row: int, length: int) -> None:
        """Copy the first `length` tokens of a row of `source`, which may be this class."""
        for ours, theirs in ((self.keys, source.keys), (self.values, source.values)):
            for target, origin in zip(ours, theirs, strict=True):
                target[row, :, :length] = origin[source_row, :, :length]

    def _resize(self, rows: int) -> None:
        used, longest = len(self.slots), max(self.filled, default=0)
        for tensors in (self.keys, self.values):
            for index, tensor in enumerate(tensors):
                tensors[index] = tensor.new_zeros(rows, *tensor.shape[1:])
                tensors[index][:used, :, :longest] = tensor[:used, :, :longest]


@dataclass
class Place:
    """Where a slot lies."""

    size_class: SizeClass
    row: int

    @property
    def filled(self) -> int:
        """Number of tokens in the slot."""
        return self.size_class.filled[self.row]


class SlotCache:
    """Keys and values of up to `slots` sequences of up to `max_length` tokens."""

    def __init__(
        self,
        shape: CacheShape,
        *,
        slots: int,
        max_length: int,
        dtype: torch.dtype,
        device: torch.device,
        smallest: int = SMALLEST_LENGTH,
    ) -> None:
        self.shape, self.slots, self.max_length = shape, slots, max_length
        self.dtype, self.device = dtype, device
        self._smallest = smallest
        self._classes: dict[int, SizeClass] = {}
        self._places: dict[int, Place] = {}

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the blocks take, written or not."""
        tokens = sum(size_class.rows * size_class.length for size_class in self._classes.values())
        return tokens * self.shape.bytes_per_token(self.dtype)

    def filled(self, slot: int) -> int:
        """Number of tokens in `slot`."""
        place = self._places.get(slot)
        return place.filled if place else 0

    def place(self, slot: int) -> Place:
        """Where `slot` lies now: valid until the next call that makes room or releases."""
        return self._places[slot]

    def check_fits(self, slot: int, length: int) -> None:
        """ValueError if there is no such slot, or none may hold `length` tokens."""
        if not 0 <= slot < self.slots:
            raise ValueError(f"slot {slot} of {self.slots}")
        if length > self.max_length:
            raise ValueError(f"{length} tokens exceed the {self.max_length} that a slot may hold")

    def make_room(self, slot: int, length: int) -> None:
        """Give `slot` a row of at least `length` tokens, keeping what it holds. ValueError if it can never fit."""
        self.check_fits(slot, length)
        old = self._places.get(slot)
        if old is not None and old.size_class.length >= length:
            return
        size_class = self._size_class(length)
        new = Place(size_class, size_class.add(slot, self.slots))
        if old is not None:
            size_class.copy_from(old.size_class, old.row, new.row, old.filled)
            size_class.set_filled(new.row, old.filled)
            self._free(old)
        self._places[slot] = new

    def set_filled(self, slot: int, length: int) -> None:
        """Say that `slot` holds `length` tokens now; what lay past them is forgotten."""
        place = self._places[slot]
        place.size_class.set_filled(place.row, length)

    def release(self, slot: int) -> None:
        """Forget the slot's tokens and free its row; nothing happens if it holds none."""
        if (place := self._places.pop(slot, None)) is not None:
            self._free(place)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` tokens of `source`. ValueError if the source holds fewer."""
        if length > self.filled(source):
            raise ValueError(f"slot {source} holds {self.filled(source)} tokens, not {length}")
        self.make_room(target, length)
        origin, place = self._places[source], self._places[target]
        place.size_class.copy_from(origin.size_class, origin.row, place.row, length)
        self.set_filled(target, length)

    def _free(self, place: Place) -> None:
        moved = place.size_class.remove(place.row)
        if place.row < len(place.size_class.slots):
            self._places[moved].row = place.row
        if not place.size_class.slots:
            del self._classes[place.size_class.length]

    def _size_class(self, length: int) -> SizeClass:
        fitting = next(size for size in self._lengths() if size >= length)
        if fitting not in self._classes:
            self._classes[fitting] = SizeClass(self.shape, fitting, self.dtype, self.device)
        return self._classes[fitting]

    def _lengths(self) -> Iterator[int]:
        length = min(self._smallest, self.max_length)
        while length < self.max_length:
            yield length
            length = min(2 * length, self.max_length)
        yield self.max_length
