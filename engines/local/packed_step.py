"""Attention of one pass over tokens of many sequences, packed one after another without padding.

Single tokens (decoding) are attended together where they lie close together in the cache; longer spans (pieces of
prompts) one by one. Query heads that share a key head are folded into query rows, so keys and values are never
repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import torch
from torch.nn.functional import scaled_dot_product_attention

from engines.local.cache import Place, SizeClass, SlotCache


class Span(msgspec.Struct, frozen=True):
    """Tokens of one sequence to run in this step; `start` is the first one's position in the sequence."""

    slot: int
    start: int
    token_ids: list[int]

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.token_ids)


class Part(Protocol):
    """Some of the pass's tokens, attended in one call."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        result: torch.Tensor,
    ) -> None:
        """Keep this part's keys and values and fill its rows of `result`; shapes as in `AttentionStep`."""
        ...


class PackedStep:
    """The attention step over `spans`, whose slots have room in `cache`; valid until the cache changes."""

    def __init__(self, spans: Sequence[Span], cache: SlotCache) -> None:
        single: dict[int, tuple[SizeClass, list[Row]]] = {}
        self._parts: list[Part] = []
        offset = 0
        for span in spans:
            place = cache.place(span.slot)
            if len(span.token_ids) == 1:
                row = Row(place.row, offset, span.start)
                single.setdefault(place.size_class.length, (place.size_class, []))[1].append(row)
            else:
                self._parts.append(Piece(place, offset, span, cache))
            offset += len(span.token_ids)
        for size_class, rows in single.values():
            self._parts += [DecodeRows(size_class, run, cache) for run in close_runs(rows)]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """See `AttentionStep`."""
        result = query.new_empty(query.shape[0], query.shape[1], value.shape[2])
        for part in self._parts:
            part.attend(layer, query, key, value, scaling, result)
        return result


class Piece:
    """A longer span: its tokens see what its slot holds, and each other causally."""

    def __init__(self, place: Place, offset: int, span: Span, cache: SlotCache) -> None:
        self._place, self._start, self._end = place, span.start, span.end
        self._tokens = slice(offset, offset + len(span.token_ids))
        self._mask: torch.Tensor | None = None
        if span.start:
            queries = torch.arange(span.start, span.end, device=cache.device)
            keys = torch.arange(span.end, device=cache.device)
            self._mask = bias(keys <= queries[:, None], cache.dtype)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        result: torch.Tensor,
    ) -> None:
        """See `Part`."""
        row = self._place.row
        keys = self._place.size_class.keys[layer][row : row + 1, :, : self._end]
        values = self._place.size_class.values[layer][row : row + 1, :, : self._end]
        keys[0, :, self._start :] = key[self._tokens].transpose(0, 1)
        values[0, :, self._start :] = value[self._tokens].transpose(0, 1)
        attended = scaled_dot_product_attention(
            query[self._tokens].transpose(0, 1).unsqueeze(0),
            keys,
            values,
            attn_mask=self._mask,
            is_causal=self._mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        result[self._tokens] = attended[0].transpose(0, 1)


@dataclass(frozen=True, order=True)
class Row:
    """A decoding sequence: its row in its size class, its token's place in the pass, and its position."""

    row: int
    token: int
    position: int


class DecodeRows:
    """Single tokens of sequences that lie close together in one size class: their cache rows are taken as one slice.

    Rows between them, of sequences that wait or run a longer span or have ended, are computed and thrown away.
    """

    def __init__(self, size_class: SizeClass, rows: Sequence[Row], cache: SlotCache) -> None:
        self._size_class = size_class
        self._length = max(row.position for row in rows) + 1

        def column(numbers: list[int]) -> torch.Tensor:
            return torch.tensor(numbers, device=cache.device)

        self._rows = column([row.row for row in rows])
        self._tokens = column([row.token for row in rows])
        self._positions = column([row.position for row in rows])
        first, end = rows[0].row, rows[-1].row + 1
        self._block = slice(first, end)
        self._source = self._tokens
        last_seen = self._positions
        self._within: torch.Tensor | None = None
        if end - first > len(rows):
            self._within = self._rows - first
            self._source = self._tokens.new_zeros(end - first).index_copy(0, self._within, self._tokens)
            last_seen = self._positions.new_zeros(end - first).index_copy(0, self._within, self._positions)
        seen = torch.arange(self._length, device=cache.device) <= last_seen[:, None]
        alike = self._within is None and len({row.position for row in rows}) == 1
        self._mask = None if alike else bias(seen, cache.dtype)[:, None, None, :]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        result: torch.Tensor,
    ) -> None:
        """See `Part`."""
        all_keys, all_values = self._size_class.keys[layer], self._size_class.values[layer]
        all_keys[self._rows, :, self._positions] = key[self._tokens]
        all_values[self._rows, :, self._positions] = value[self._tokens]
        keys, values = all_keys[self._block, :, : self._length], all_values[self._block, :, : self._length]
        kv_heads = key.shape[1]
        folded = query[self._source].view(-1, kv_heads, query.shape[1] // kv_heads, query.shape[2])
        attended = scaled_dot_product_attention(folded, keys, values, attn_mask=self._mask, scale=scaling)
        attended = attended.reshape(-1, query.shape[1], value.shape[2])
        result[self._tokens] = attended if self._within is None else attended[self._within]


def close_runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in the order of the cache, cut into runs of which at least every second cache row is one of them.

    Gathering what lies farther apart would cost as much as the attention itself.
    """
    runs: list[list[Row]] = []
    for row in sorted(rows):
        if runs and row.row - runs[-1][0].row < 2 * (len(runs[-1]) + 1):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def bias(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a key is seen and minus infinity elsewhere, to be added to attention scores."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
