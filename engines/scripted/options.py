"""Settings of the scripted engine."""

import msgspec

from engines.protocol import Capabilities, LogprobsMode, SamplingParams

SCRIPTED_CAPABILITIES = Capabilities(
    sampling=frozenset(SamplingParams.__struct_fields__),
    token_logprobs=True,
    chosen_logprobs=True,
    prompt_logprobs=True,
    logprobs_modes=frozenset(LogprobsMode),
    priority=True,
    hidden_states=True,
    embeddings=True,
)
"""What the scripted engine does.

It takes every sampling field. max_tokens, min_tokens, stop_token_ids and ignore_eos act as in any engine. The others
(temperature, penalties, seed ...) have nothing to act on, because the script decides the tokens. There is one
distribution per position, which stands for the raw and for the processed one.
"""


class ScriptedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a scripted engine presents itself and how fast it goes.

    model, tokenizer, max_model_len, vocab_size, eos_token_ids: what its EngineInfo says. Output ends at
        max_model_len and at the end-of-sequence ids as in any engine.
    step_ms: milliseconds between two frames; 0: as fast as the loop allows, which gets its turn between frames;
        None: no drive of its own, each frame is asked for with `ScriptedEngine.step`.
    first_token_ms: milliseconds from submission to a sequence's first row, where the engine drives itself.
    max_running, queue_limit: sequences that get rows at once, and that may wait for it; one more is refused.
    rows_per_frame: a step's rows are spread over several frames of at most this many; None: one frame.
    text_ids: token ids of a text that requests without a script of their own receive over and over.
    script_file: JSON file with a list of scripts that requests receive in turn, instead of the text.
    capabilities: what it claims to do; the gateway refuses the rest.
    """

    model: str = "scripted"
    tokenizer: str = ""
    max_model_len: int = 32768
    vocab_size: int = 32000
    eos_token_ids: tuple[int, ...] = ()
    step_ms: float | None = None
    first_token_ms: float = 0.0
    max_running: int = 4096
    queue_limit: int = 4096
    rows_per_frame: int | None = None
    text_ids: list[int] = []
    script_file: str | None = None
    weight_version: str = "default"
    capabilities: Capabilities = SCRIPTED_CAPABILITIES
