"""Loads a causal language model for generation: the default small one, a directory, a GGUF file, or one of the hub."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from engines.local import attention
from engines.local.conversion import Report
from engines.local.linear import pack_linears
from engines.local.load_error import ModelLoadError
from engines.local.model_check import check_model
from engines.local.model_directory import find_directory
from engines.local.model_parts import embedding_of

__all__ = ["LoadedModel", "ModelLoadError", "find_directory", "load_model"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, without gradients. A tokenizer loads from `directory`; `name` is for people."""

    model: PreTrainedModel
    directory: str
    name: str
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]


def load_model(source: str | None, *, dtype: str = "auto", device: str = "auto", report: Report) -> LoadedModel:
    """Load `source`: None for the small default model, a directory, a .gguf file, or a name on the hub.

    `dtype` is auto, bfloat16 or float32; `device` is auto or torch's name of one. ModelLoadError says what is wrong.
    """
    place = choose_device(device)
    number_type = choose_dtype(dtype, place)
    directory, name = find_directory(source, report)
    start = time.monotonic()
    report(f"loading {name} as {str(number_type).removeprefix('torch.')} on {place}")
    model = read_model(directory, number_type, place)
    if place.type == "cpu":
        pack_linears(model)
    check_model(model)
    report(f"loaded {name} in {time.monotonic() - start:.1f} s")
    return LoadedModel(
        model=model,
        directory=str(directory),
        name=name,
        device=place,
        dtype=number_type,
        vocab_size=embedding_of(model).num_embeddings,
        max_model_len=int(model.config.max_position_embeddings),
        eos_token_ids=end_tokens(model),
    )


def choose_device(name: str) -> torch.device:
    """The device called `name`; auto is CUDA where there is one. ModelLoadError for one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ModelLoadError(f"the device {name!r} can't be used: {error}") from error


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number type called `name`; auto is bfloat16 where the device computes it natively, float32 elsewhere."""
    if name == "auto":
        native = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_has_bfloat16()
        return torch.bfloat16 if native else torch.float32
    if name not in DTYPES:
        raise ModelLoadError(f"the dtype {name!r} is not known; use auto, {' or '.join(DTYPES)}")
    return DTYPES[name]


def read_model(directory: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The module, weights read, in evaluation mode; ModelLoadError for what can't run on our attention."""
    transformers_logging: Any = logging
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            directory, config=config, dtype=dtype, attn_implementation=attention.NAME, local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelLoadError(
            f"{directory} holds no causal language model that transformers can load: {error}"
        ) from error
    if not model._supports_attention_backend:
        raise ModelLoadError(f"{type(model).__name__} does not let its attention be replaced")
    if windows := sorted(set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}):
        raise ModelLoadError(f"{type(model).__name__} has layers of {', '.join(windows)}, which are not supported")
    loaded: PreTrainedModel = model.eval().requires_grad_(False).to(device)
    return loaded


def end_tokens(model: PreTrainedModel) -> tuple[int, ...]:
    """The ids that end a text, of the generation configuration and the model's."""
    ids: list[int] = []
    for config in (model.generation_config, model.config):
        value = getattr(config, "eos_token_id", None)
        ids += [value] if isinstance(value, int) else value or []
    return tuple(dict.fromkeys(ids))


def _cpu_has_bfloat16() -> bool:
    """Asks torch's private detection, where it exists: emulated bfloat16 is slower than float32."""
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(ask() for ask in asked if ask is not None)
