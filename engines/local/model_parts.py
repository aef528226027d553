"""The parts of a transformers causal language model that are run one by one: body and head.

transformers leaves these methods untyped; they get their types here.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from engines.local.attention import NAME, AttentionStep


def embedding_of(model: PreTrainedModel) -> nn.Embedding:
    """Token ids -> hidden states."""
    module: Any = model
    embedding: nn.Embedding = module.get_input_embeddings()
    return embedding


def head_of(model: PreTrainedModel) -> nn.Module:
    """Hidden states -> logits."""
    module: Any = model
    head: nn.Module = module.get_output_embeddings()
    return head


def run_body(model: PreTrainedModel, token_ids: list[int], positions: list[int], step: AttentionStep) -> torch.Tensor:
    """The last hidden states [tokens, hidden] of packed tokens, whose attention is `step`."""
    output = model.base_model(
        input_ids=torch.tensor([token_ids], device=model.device),
        position_ids=torch.tensor([positions], device=model.device),
        use_cache=False,
        step=step,
    )
    hidden: torch.Tensor = output.last_hidden_state[0]
    return hidden


def run_whole(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """The logits [tokens, vocabulary] of one sequence by transformers' own forward pass and attention."""
    module: Any = model
    module.set_attn_implementation("sdpa" if module._supports_sdpa else "eager")
    try:
        logits: torch.Tensor = module(input_ids=torch.tensor([token_ids], device=module.device), use_cache=False).logits
    finally:
        module.set_attn_implementation(NAME)
    return logits[0]
