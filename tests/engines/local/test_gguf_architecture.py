from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from engines.local.gguf_architecture import GgufModel
from engines.local.gguf_reading import GgufFile
from engines.local.load_error import ModelLoadError
from tests.engines.local.tiny_models import tiny_config, tiny_model, write_gguf

KINDS = {
    "llama": tiny_config(LlamaConfig, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "llama untied": tiny_config(LlamaConfig, tie_word_embeddings=False),
    "llama tied": tiny_config(LlamaConfig, tie_word_embeddings=True),
    "qwen2": tiny_config(Qwen2Config),
    "qwen3": tiny_config(Qwen3Config, head_dim=24, tie_word_embeddings=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_configuration_come_back(tmp_path: Path, kind: str) -> None:
    original = tiny_model(KINDS[kind])
    write_gguf(tmp_path / "m.gguf", original, architecture=kind.partition(" ")[0])
    model = GgufModel(GgufFile(tmp_path / "m.gguf"))
    weights = {name: weight.numpy() for name, weight in original.state_dict().items()}
    if original.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    assert sorted(model.tensors) == sorted(weights)
    for name, weight in weights.items():
        assert np.array_equal(model.read(name), weight), name
    written = model.config()
    build: Callable[..., PreTrainedConfig] = type(original.config)
    read, expected = build(**written).to_dict(), original.config.to_dict()
    for field in written.keys() & expected.keys() - {"architectures"}:
        assert read[field] == expected[field], field
    assert written["architectures"] == [type(original).__name__]


def write_llama(path: Path, **changes: object) -> None:
    write_gguf(path, tiny_model(tiny_config()), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba' can't be converted; known are llama, qwen2, qwen3"),
        ({"extra": {"expert_count": 8}}, "expert_count 8"),
        ({"extra": {"rope.scaling.type": "yarn"}}, "rope.scaling.type 'yarn'"),
        ({"extra": {"attention.sliding_window": 64}}, "attention.sliding_window 64"),
        ({"rename": lambda name: name.replace("output_norm.weight", "rope_freqs.weight")}, "tensor rope_freqs.weight"),
        ({"rename": lambda name: name.replace("blk.0.attn_q.weight", "blk.0.attn_q.scale")}, "blk.0.attn_q.scale"),
        ({"rename": lambda name: None if name == "blk.1.ffn_up.weight" else name}, "lacks 1 weights"),
        ({"rename": lambda name: name.replace("blk.1.", "blk.7.")}, "lacks 9 weights"),
    ],
    ids=["architecture", "experts", "rope", "window", "unknown tensor", "unknown part", "missing", "renumbered"],
)
def test_what_does_not_map_exactly_is_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    write_llama(tmp_path / "m.gguf", **changes)
    with pytest.raises(ModelLoadError) as refusal:
        GgufModel(GgufFile(tmp_path / "m.gguf"))
    assert reason in str(refusal.value)
