import pytest
import torch
from transformers import (
    Gemma2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    StableLmConfig,
    Starcoder2Config,
)

from engines.local.cache import CacheShape
from engines.local.load_error import ModelLoadError
from engines.local.model_check import check_model, measure_cache_shape
from engines.local.runner import ModelRunner, Span
from tests.engines.local.tiny_models import CONTEXT, loaded, plain_logits, tiny_config, tiny_model

PLAIN = [
    tiny_config(LlamaConfig),
    tiny_config(LlamaConfig, num_key_value_heads=4, head_dim=24, attention_bias=True),
    tiny_config(LlamaConfig, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}),
    tiny_config(MistralConfig, sliding_window=None),
    tiny_config(MixtralConfig, sliding_window=None, num_local_experts=4),
    tiny_config(Qwen2Config),
    tiny_config(Qwen3Config, head_dim=16),
    tiny_config(Olmo2Config),
    tiny_config(Phi3Config, sliding_window=None),
    tiny_config(Starcoder2Config, sliding_window=None),
    tiny_config(GPTNeoXConfig),
]
OTHERS = {
    "StableLm.* is not told": tiny_config(StableLmConfig),
    "Mistral.*sliding_window": tiny_config(MistralConfig, sliding_window=16),
    "Gemma2.*(sliding_window|softcap)": tiny_config(Gemma2Config, head_dim=16),
    "Granite.*other logits": tiny_config(GraniteConfig, logits_scaling=4.0),
}


@pytest.mark.parametrize("config", PLAIN, ids=lambda config: config.model_type)
def test_models_of_plain_attention_run_here_as_in_transformers(config: PreTrainedConfig) -> None:
    model = tiny_model(config)
    check_model(model)
    ids = [7, 3, 60, 22, 5, 41, 9]
    expected = plain_logits(model, ids)
    run = ModelRunner(loaded(model), slots=2, max_model_len=CONTEXT)
    run.hidden_states([Span(0, 0, ids[:3]), Span(1, 0, ids[:6])])
    hidden = run.hidden_states([Span(1, 6, ids[6:]), Span(0, 3, ids[3:])])
    assert torch.allclose(run.logits(hidden), torch.cat([expected[6:], expected[3:]]), rtol=0, atol=2e-4)


@pytest.mark.parametrize("reason", OTHERS)
def test_what_would_come_out_wrong_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        check_model(tiny_model(OTHERS[reason]))


def test_the_shape_of_the_cache_is_the_model_s() -> None:
    model = tiny_model(tiny_config(LlamaConfig, num_hidden_layers=3, head_dim=24))
    assert measure_cache_shape(model) == CacheShape(layers=3, kv_heads=2, key_size=24, value_size=24)
