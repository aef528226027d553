"""What the model and its tokenizer are, in SGLang's and vLLM's shapes."""

from typing import Any

from fastapi import APIRouter

from routers.service import ServiceDep

router = APIRouter(tags=["model"])


@router.get("/get_model_info")
@router.get("/model_info")
async def model_info(service: ServiceDep) -> dict[str, Any]:
    """SGLang's description of the model."""
    info = service.gateway.info
    return {
        "model_path": info.model,
        "served_model_name": service.names[0],
        "tokenizer_path": info.tokenizer,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": info.weight_version,
        "max_model_len": info.max_model_len,
        "vocab_size": info.vocab_size,
        "eos_token_ids": list(info.eos_token_ids),
        "logprobs_mode": service.options.logprobs_mode.value,
    }


@router.get("/tokenizer_info")
async def tokenizer_info(service: ServiceDep) -> dict[str, Any]:
    """VLLM's description of the tokenizer, which lm-evaluation-harness reads."""
    tokenizer = service.gateway.tokenizer
    return {
        "tokenizer_class": tokenizer.class_name,
        **tokenizer.special_tokens,
        "chat_template": tokenizer.chat_template,
        "model_max_length": service.gateway.info.max_model_len,
    }
