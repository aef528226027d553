"""Runs a model over tokens of many sequences at once, keeping their keys and values."""

from collections.abc import Sequence

import torch

from engines.local.cache import SMALLEST_LENGTH, SlotCache
from engines.local.loading import LoadedModel
from engines.local.model_check import measure_cache_shape
from engines.local.model_parts import head_of, run_body
from engines.local.packed_step import PackedStep, Span

__all__ = ["ModelRunner", "Span"]


class ModelRunner:
    """A loaded model with a cache of `slots` sequences of up to `max_model_len` tokens.

    Slots are numbered from 0; who uses which is the caller's to decide. Not safe for several threads at once.
    """

    def __init__(
        self, loaded: LoadedModel, *, slots: int, max_model_len: int, smallest_block: int = SMALLEST_LENGTH
    ) -> None:
        if max_model_len > loaded.max_model_len:
            raise ValueError(f"the model's context is {loaded.max_model_len} tokens, not {max_model_len}")
        self.vocab_size = loaded.vocab_size
        self._model = loaded.model
        self._head = head_of(loaded.model)
        self._cache = SlotCache(
            measure_cache_shape(loaded.model),
            slots=slots,
            max_length=max_model_len,
            dtype=loaded.dtype,
            device=loaded.device,
            smallest=smallest_block,
        )

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes."""
        return self._cache.shape.bytes_per_token(self._cache.dtype)

    @property
    def cache_bytes(self) -> int:
        """Bytes that the cache's blocks take now."""
        return self._cache.allocated_bytes

    @torch.inference_mode()
    def hidden_states(self, spans: Sequence[Span]) -> torch.Tensor:
        """Run the spans' tokens: single tokens and pieces of prompts, in any mix and at any positions.

        Returns the last layer's output [total tokens, hidden], in the order of the spans, and leaves the tokens' keys
        and values in their slots. A span may start before the end of what its slot holds: the rest is forgotten.
        Raises ValueError for a slot named twice, a span without tokens, one that leaves a gap, or one too long;
        then nothing has changed.
        """
        if len({span.slot for span in spans}) < len(spans):
            raise ValueError("a slot is named twice in one step")
        for span in spans:
            if not span.token_ids or span.start > self._cache.filled(span.slot):
                raise ValueError(f"slot {span.slot} can't take {len(span.token_ids)} tokens at {span.start}")
            self._cache.check_fits(span.slot, span.end)
        for span in spans:
            self._cache.make_room(span.slot, span.end)
            self._cache.set_filled(span.slot, span.end)
        ids = [token_id for span in spans for token_id in span.token_ids]
        positions = [position for span in spans for position in range(span.start, span.end)]
        return run_body(self._model, ids, positions, PackedStep(spans, self._cache))

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The float32 logits [rows, vocabulary] of hidden states [rows, hidden]."""
        logits: torch.Tensor = self._head(hidden).float()
        return logits

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Forget the slot's tokens; its memory may be returned."""
        self._cache.release(slot)

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` tokens of `source`. ValueError if the source holds fewer."""
        self._cache.copy_prefix(source, target, length)
