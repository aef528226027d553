"""Finds out, by a pass over a few tokens, whether a model can run on our attention and cache, and with what shapes."""

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from engines.local.cache import CacheShape
from engines.local.load_error import ModelLoadError
from engines.local.model_parts import embedding_of, head_of, run_body, run_whole

PROBE_TOKENS = 4
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.06, torch.float16: 0.02}


class ShapeRecorder:
    """An attention step without a cache, for one short sequence, that notes the shapes it meets."""

    def __init__(self) -> None:
        self.shapes: dict[int, tuple[int, int, int]] = {}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """See `AttentionStep`."""
        if layer in self.shapes:
            raise ModelLoadError(f"the model runs attention layer {layer} twice in one pass")
        self.shapes[layer] = (key.shape[1], key.shape[2], value.shape[2])
        attended = scaled_dot_product_attention(
            query.transpose(0, 1).unsqueeze(0),
            key.transpose(0, 1).unsqueeze(0),
            value.transpose(0, 1).unsqueeze(0),
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended[0].transpose(0, 1)

    def cache_shape(self) -> CacheShape:
        """What was met; ModelLoadError unless all layers are alike and numbered from 0."""
        if sorted(self.shapes) != list(range(len(self.shapes))) or len(set(self.shapes.values())) != 1:
            raise ModelLoadError(f"the model's attention layers are not alike: {self.shapes}")
        kv_heads, key_size, value_size = self.shapes[0]
        return CacheShape(len(self.shapes), kv_heads, key_size, value_size)


@torch.inference_mode()
def measure_cache_shape(model: PreTrainedModel) -> CacheShape:
    """The shapes of the model's keys and values; ModelLoadError if its attention is not plain."""
    recorder = ShapeRecorder()
    run_body(model, _probe_ids(model), list(range(PROBE_TOKENS)), recorder)
    return recorder.cache_shape()


@torch.inference_mode()
def check_model(model: PreTrainedModel) -> None:
    """Compare body, our attention and head with the model's own forward pass; ModelLoadError if they differ.

    They differ for models that change their logits after the head, keep a state besides keys and values, or have
    attention that our function can't see.
    """
    ids = _probe_ids(model)
    recorder = ShapeRecorder()
    ours = head_of(model)(run_body(model, ids, list(range(PROBE_TOKENS)), recorder)).float()
    recorder.cache_shape()
    theirs = run_whole(model, ids).float()
    difference = float((ours - theirs).norm() / theirs.norm())
    if not difference <= TOLERANCE[model.dtype]:
        raise ModelLoadError(
            f"{type(model).__name__} gives other logits here than in transformers (by {difference:.2g} of their size)"
        )


def _probe_ids(model: PreTrainedModel) -> list[int]:
    """Ids spread over the vocabulary: the first ones are special tokens, at which bfloat16 is far off."""
    stride = embedding_of(model).num_embeddings // (PROBE_TOKENS + 1)
    return [stride * (index + 1) for index in range(PROBE_TOKENS)]
