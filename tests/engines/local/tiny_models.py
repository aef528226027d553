"""Random models of a few thousand weights, as transformers modules and as GGUF files."""

import string
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from engines.local import attention
from engines.local.loading import LoadedModel

VOCABULARY = 64
CONTEXT = 96
WORDS = ["<|end|>", "<|start|>", "<|tool|>"]
LETTERS = list((string.ascii_lowercase + string.digits + string.ascii_uppercase)[: VOCABULARY - len(WORDS) - 1])
TOKENS = [*WORDS, *LETTERS, "ab"]


def tiny_config(kind: type[PreTrainedConfig] = LlamaConfig, **changes: object) -> PreTrainedConfig:
    fields: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 1,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    build: Callable[..., PreTrainedConfig] = kind
    return build(**fields | changes)


def tiny_model(config: PreTrainedConfig, implementation: str = attention.NAME) -> PreTrainedModel:
    torch.manual_seed(7)
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    model = build(config, attn_implementation=implementation, dtype=torch.float32)
    model.train(False).requires_grad_(False)
    return model


def loaded(model: PreTrainedModel) -> LoadedModel:
    return LoadedModel(
        model=model,
        directory="",
        name="tiny",
        device=torch.device("cpu"),
        dtype=torch.float32,
        vocab_size=VOCABULARY,
        max_model_len=CONTEXT,
        eos_token_ids=(0,),
    )


def plain_logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """transformers' own forward pass with its own attention, [tokens, vocabulary]."""
    from engines.local.model_parts import run_whole

    with torch.inference_mode():
        return run_whole(model, token_ids).float()


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    architecture: str = "llama",
    pre: str = "smollm",
    tokenizer: str = "gpt2",
    extra: Mapping[str, int | str] | None = None,
    rename: Callable[[str], str | None] = lambda name: name,
) -> None:
    """Write `model` as llama.cpp's converter would; `rename` changes tensor names, None drops one."""
    config = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(
        config.head_dim if architecture == "qwen3" else config.hidden_size // config.num_attention_heads
    )
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(WORDS) + [1] * (len(TOKENS) - len(WORDS)))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{{ messages[0].content }}")
    for key, value in (extra or {}).items():
        if isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
        else:
            writer.add_string(f"{architecture}.{key}", value)
    for name, weight in model.state_dict().items():
        target = rename(gguf_name(name))
        if target is None or (name == "lm_head.weight" and config.tie_word_embeddings):
            continue
        values = weight.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = rotary_pairs(values, heads)
        writer.add_tensor(target, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    for ours, theirs in {
        "model.embed_tokens.": "token_embd.",
        "model.norm.": "output_norm.",
        "lm_head.": "output.",
        "model.layers.": "blk.",
        ".input_layernorm.": ".attn_norm.",
        ".post_attention_layernorm.": ".ffn_norm.",
        ".self_attn.q_norm.": ".attn_q_norm.",
        ".self_attn.k_norm.": ".attn_k_norm.",
        ".self_attn.o_proj.": ".attn_output.",
        ".self_attn.": ".attn_",
        ".mlp.": ".ffn_",
        "_proj.": ".",
    }.items():
        name = name.replace(ours, theirs)
    return name


def rotary_pairs(values: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = values.shape
    halves = values.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
