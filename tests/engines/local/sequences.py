"""Sequences for tests of planning."""

from typing import Any

import torch

from engines.local.sampling import Sampler
from engines.local.sequence import Sequence
from engines.protocol import EngineRequest, SamplingParams

SAMPLER = Sampler(100, torch.device("cpu"))


def sequence(name: str, prompt: list[int], *, arrival: int = 0, owner: bytes = b"a", **fields: Any) -> Sequence:
    """A sequence of a thousand tokens to come; `fields`: further ones of its EngineRequest."""
    params = SamplingParams(max_tokens=1000)
    request = EngineRequest(id=name, prompt_token_ids=prompt, sampling=params, **fields)
    return Sequence(owner, request, SAMPLER.start(params, prompt, []), arrival)
