"""Where transformers' attention layers hand queries, keys and values over to our cache.

Models call the function registered under NAME with whatever the caller of the model passed on as `step`: no model code
is patched. A model that asks for more than plain scaled dot-product attention is refused here, with what it asked for.
"""

from typing import Protocol

import torch
from transformers import AttentionInterface

from engines.local.load_error import ModelLoadError

NAME = "tailrace"
HARMLESS = frozenset({"is_causal", "position_ids", "use_cache", "output_attentions", "cache_position", "cache"})


class AttentionStep(Protocol):
    """One pass of a model over packed tokens."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """Keep the new keys and values of `layer` and return the attention's result.

        query [tokens, heads, size]; key, value [tokens, kv heads, size]; returns [tokens, heads, size].
        """
        ...


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    step: AttentionStep | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: query, key, value [1, heads, tokens, size]; returns [1, tokens, heads, size].

    Raises ModelLoadError for attention other than causal, unmasked, without windows, sinks, caps or biases.
    """
    if step is None:
        raise ModelLoadError(f"{type(module).__name__} is not told what the caller of its model passes on")
    asked = sorted(name for name, value in options.items() if name not in HARMLESS and value is not None)
    if options.get("is_causal") is False or not getattr(module, "is_causal", True):
        asked.append("is_causal=False")
    if attention_mask is not None:
        asked.append("attention_mask")
    if dropout:
        asked.append("dropout")
    layer = getattr(module, "layer_idx", None)
    if asked or not isinstance(layer, int):
        raise ModelLoadError(f"{type(module).__name__} needs attention with {', '.join(asked) or 'unnumbered layers'}")
    result = step.attend(
        layer,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return result.unsqueeze(0), None


AttentionInterface.register(NAME, attention_forward)
