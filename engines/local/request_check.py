"""What this engine can't compute, found before a request can spoil a step that it shares with others."""

from engines.errors import ContextLengthExceeded, InvalidValue, RequestError, UnsupportedFeature
from engines.protocol import EngineRequest


def check_request(request: EngineRequest, *, vocab_size: int, max_model_len: int) -> None:
    """Raise the RequestError that a request deserves: no prompt, too long, ids out of range, features not built."""
    if fault := _find_fault(request, vocab_size, max_model_len):
        raise fault


def _find_fault(request: EngineRequest, vocab_size: int, max_model_len: int) -> RequestError | None:
    prompt, sampling, logprobs = request.prompt_token_ids, request.sampling, request.logprobs
    if not prompt:
        return InvalidValue("the prompt is empty", param="prompt")
    if len(prompt) + min(sampling.max_tokens, 1) > max_model_len:
        return ContextLengthExceeded(f"a prompt of {len(prompt)} tokens exceeds the context of {max_model_len} tokens")
    if sampling.max_tokens < 0 or sampling.temperature < 0 or sampling.repetition_penalty <= 0:
        return InvalidValue("max_tokens, temperature or repetition_penalty is out of range")
    ids = {"prompt": prompt, "logit_bias": list(sampling.logit_bias)}
    if logprobs is not None:
        ids["logprobs"] = list(logprobs.token_ids)
        if logprobs.prompt_start is not None and not 0 <= logprobs.prompt_start <= len(prompt):
            return InvalidValue("prompt logprobs are asked for from a position outside the prompt", param="logprobs")
    for name, values in ids.items():
        if values and not 0 <= min(values) <= max(values) < vocab_size:
            return InvalidValue(f"a token id is not in the vocabulary of {vocab_size} tokens", param=name)
    unsupported = {
        "grammar": request.grammar is not None,
        "lora": request.lora is not None,
        "hidden states": request.return_hidden_states,
    }
    if names := [name for name, asked in unsupported.items() if asked]:
        return UnsupportedFeature(f"this engine can't do: {', '.join(names)}")
    return None
