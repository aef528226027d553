"""Requests for tests of the step side."""

from typing import Any

from engines.protocol import EngineRequest, LogprobParams, SamplingParams


def greedy(request_id: str, prompt: list[int], max_tokens: int, **changes: Any) -> EngineRequest:
    fields: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True} | changes
    return EngineRequest(
        id=request_id, prompt_token_ids=prompt, sampling=SamplingParams(max_tokens=max_tokens, **fields)
    )


def drawn(request_id: str, prompt: list[int], max_tokens: int, seed: int | None, **changes: Any) -> EngineRequest:
    fields: dict[str, Any] = {"seed": seed, "ignore_eos": True} | changes
    return EngineRequest(
        id=request_id, prompt_token_ids=prompt, sampling=SamplingParams(max_tokens=max_tokens, **fields)
    )


def measured(request_id: str, prompt: list[int], max_tokens: int, wish: LogprobParams, **changes: Any) -> EngineRequest:
    fields: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True} | changes
    return EngineRequest(
        id=request_id,
        prompt_token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, **fields),
        logprobs=wish,
    )
