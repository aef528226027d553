"""From options to an engine that can step."""

import torch

from engines.local.conversion import Report
from engines.local.engine_core import EngineCore
from engines.local.load_error import ModelLoadError
from engines.local.loading import LoadedModel, load_model
from engines.local.options import CONTEXT_CAP, LocalEngineOptions
from engines.local.runner import ModelRunner
from engines.local.scheduler import Scheduler
from engines.local.slot_pool import SlotPool
from engines.protocol import Capabilities, EngineInfo, LogprobsMode, SamplingParams

CAPABILITIES = Capabilities(
    sampling=frozenset(SamplingParams.__struct_fields__),
    token_logprobs=True,
    max_top_logprobs=None,
    chosen_logprobs=True,
    prompt_logprobs=True,
    logprobs_modes=frozenset(LogprobsMode),
    priority=True,
)


def build_core(options: LocalEngineOptions, report: Report) -> tuple[EngineCore, LoadedModel]:
    """Load the model and build the engine around it. Raises ModelLoadError."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    loaded = load_model(options.model, dtype=options.dtype, device=options.device, report=report)
    length = context_length(loaded, options)
    runner = ModelRunner(loaded, slots=options.slots, max_model_len=length)
    pool = SlotPool(runner, slots=options.slots, kept_tokens=options.prefix_cache_tokens)
    core = EngineCore(
        runner,
        Scheduler(pool, queue_limit=options.queue_limit, prefill_tokens=options.prefill_tokens),
        vocab_size=loaded.vocab_size,
        max_model_len=length,
        eos_token_ids=loaded.eos_token_ids,
        device=loaded.device,
    )
    return core, loaded


def context_length(loaded: LoadedModel, options: LocalEngineOptions) -> int:
    """Longest sequence served. ModelLoadError if more is asked than the model was made for."""
    if options.max_model_len is None:
        return min(loaded.max_model_len, CONTEXT_CAP)
    if options.max_model_len > loaded.max_model_len:
        raise ModelLoadError(
            f"{loaded.name} has a context of {loaded.max_model_len} tokens, not {options.max_model_len}"
        )
    return options.max_model_len


def describe(loaded: LoadedModel, options: LocalEngineOptions) -> EngineInfo:
    """What the engine says of itself; its id is each gateway's own."""
    return EngineInfo(
        engine_id="",
        model=loaded.name,
        tokenizer=loaded.directory,
        max_model_len=context_length(loaded, options),
        vocab_size=loaded.vocab_size,
        eos_token_ids=loaded.eos_token_ids,
        capabilities=CAPABILITIES,
        device=str(loaded.device),
        dtype=str(loaded.dtype).removeprefix("torch."),
    )
