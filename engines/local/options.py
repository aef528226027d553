"""What the embedded engine is started with."""

import msgspec

CONTEXT_CAP = 32_768


class LocalEngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the embedded engine; they reach its process as JSON.

    model: None for the small default one, a directory, a GGUF file or a name on the hub. max_model_len: None for the
    model's own, but at most CONTEXT_CAP. slots: sequences computed at once; queue_limit: sequences waiting beyond
    them. prefill_tokens: prompt tokens a step, which bounds how long a prompt holds up running rows; a position whose
    logprobs are asked for counts at least double. prefix_cache_tokens: tokens of ended sequences kept for prompts that
    begin alike; 0 keeps none. threads: of torch, None for its default. address: of a worker that runs already; None
    starts one.
    """

    model: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    max_model_len: int | None = None
    slots: int = 32
    queue_limit: int = 1024
    prefill_tokens: int = 256
    prefix_cache_tokens: int = 8192
    threads: int | None = None
    address: str | None = None
