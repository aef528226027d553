"""What a GGUF file's model is in transformers' terms: its configuration, and the name and layout of each weight.

Only architectures whose tensors map one to one are listed; anything unexpected in a file is refused, since a weight
left out or a scaling not applied would give plausible, wrong text.
"""

import re
from dataclasses import dataclass

import numpy as np

from engines.local.gguf_reading import GgufFile, Values
from engines.local.load_error import ModelLoadError

OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


@dataclass(frozen=True)
class Architecture:
    """A family of models. `interleaved_rope`: llama.cpp stores q and k rows in rotary pairs, transformers in halves."""

    model_type: str
    class_name: str
    interleaved_rope: bool
    biased: frozenset[str] = frozenset()
    head_norms: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", interleaved_rope=True),
    "qwen2": Architecture(
        "qwen2", "Qwen2ForCausalLM", interleaved_rope=False, biased=frozenset({"attn_q", "attn_k", "attn_v"})
    ),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", interleaved_rope=False, head_norms=True),
}


class GgufModel:
    """A GGUF file read as one of the known architectures; ModelLoadError, with the reason, if it is none."""

    def __init__(self, source: GgufFile) -> None:
        self.source = source
        name = source.text("general.architecture")
        if name not in ARCHITECTURES:
            raise ModelLoadError(f"the architecture {name!r} can't be converted; known are {', '.join(ARCHITECTURES)}")
        self._name, self._architecture = name, ARCHITECTURES[name]
        self._refuse_variants()
        self.heads = self._integer("attention.head_count")
        self.kv_heads = self._integer("attention.head_count_kv", self.heads)
        self.head_size = self._integer("attention.key_length", self._integer("embedding_length") // self.heads)
        self.layers = self._integer("block_count")
        self.context_length = self._integer("context_length")
        self.tensors = {self._target_name(tensor.name): tensor for tensor in source.tensors.values()}
        self._require_all()

    def config(self) -> dict[str, object]:
        """The content of config.json."""
        source = self.source
        tokens = {
            f"{ours}_token_id": source.metadata.get(f"tokenizer.ggml.{theirs}_token_id")
            for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        }
        rope_theta = source.number(f"{self._name}.rope.freq_base") if self._has("rope.freq_base") else 10000.0
        return {
            "model_type": self._architecture.model_type,
            "architectures": [self._architecture.class_name],
            "vocab_size": self.tensors["model.embed_tokens.weight"].shape[0],
            "hidden_size": self._integer("embedding_length"),
            "intermediate_size": self._integer("feed_forward_length"),
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "max_position_embeddings": self.context_length,
            # a 32-bit float in the file: the shortest decimal that means the same number is what was meant
            "rms_norm_eps": float(str(np.float32(source.number(f"{self._name}.attention.layer_norm_rms_epsilon")))),
            "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
            "hidden_act": "silu",
            "tie_word_embeddings": "lm_head.weight" not in self.tensors,
            "dtype": "float32",
            **tokens,
        }

    def read(self, target: str) -> Values:
        """The weight called `target` in transformers, as float32, rows of q and k in transformers' order."""
        tensor = self.tensors[target]
        values = self.source.read(tensor)
        if self._architecture.interleaved_rope and target.endswith("q_proj.weight"):
            return self._halves(values, self.heads)
        if self._architecture.interleaved_rope and target.endswith("k_proj.weight"):
            return self._halves(values, self.kv_heads)
        return values

    def _halves(self, values: Values, heads: int) -> Values:
        rows, columns = values.shape
        pairs = values.reshape(heads, rows // heads // 2, 2, columns)
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))

    def _target_name(self, name: str) -> str:
        if name in OUTER_NAMES:
            return OUTER_NAMES[name]
        if match := LAYER_TENSOR.fullmatch(name):
            layer, part, kind = match.groups()
            if part in LAYER_NAMES and kind == ("bias" if part in self._architecture.biased else "weight"):
                return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"
            if part in LAYER_NAMES and kind == "weight":
                return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"
            if self._architecture.head_norms and part in ("attn_q_norm", "attn_k_norm") and kind == "weight":
                return f"model.layers.{layer}.self_attn.{part.removeprefix('attn_')}.weight"
        raise ModelLoadError(f"the tensor {name} has no place in a {self._name} model here; it may not be left out")

    def _require_all(self) -> None:
        expected = {"model.embed_tokens.weight", "model.norm.weight"}
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            expected |= {f"{prefix}{part}.weight" for part in LAYER_NAMES.values()}
            expected |= {f"{prefix}{LAYER_NAMES[part]}.bias" for part in self._architecture.biased}
            if self._architecture.head_norms:
                expected |= {f"{prefix}self_attn.{part}.weight" for part in ("q_norm", "k_norm")}
        if missing := sorted(expected - self.tensors.keys()):
            raise ModelLoadError(f"{self.source.path} lacks {len(missing)} weights, among them {missing[0]}")
        if extra := sorted(self.tensors.keys() - expected - {"lm_head.weight"}):
            raise ModelLoadError(f"{self.source.path} has weights of layers that it does not count, as {extra[0]}")

    def _refuse_variants(self) -> None:
        for key in ("expert_count", "rope.scaling.type", "attention.sliding_window"):
            if (value := self.source.metadata.get(f"{self._name}.{key}")) not in (None, 0, "none"):
                raise ModelLoadError(f"{key} {value!r} of a {self._name} GGUF file can't be converted")

    def _has(self, key: str) -> bool:
        return f"{self._name}.{key}" in self.source.metadata

    def _integer(self, key: str, default: int | None = None) -> int:
        if default is not None and not self._has(key):
            return default
        return self.source.integer(f"{self._name}.{key}")
