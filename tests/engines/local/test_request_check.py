from typing import Any

import msgspec
import pytest

from engines.errors import ContextLengthExceeded, InvalidValue, RequestError, UnsupportedFeature
from engines.local.request_check import check_request
from engines.protocol import EngineRequest, Grammar, GrammarKind, LogprobParams, SamplingParams

GOOD = EngineRequest(id="x", prompt_token_ids=[1, 2, 9], sampling=SamplingParams(max_tokens=1))


def check(**changes: Any) -> None:
    check_request(msgspec.structs.replace(GOOD, **changes), vocab_size=10, max_model_len=5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt_token_ids": [0] * 4},
        {"prompt_token_ids": [0] * 5, "sampling": SamplingParams(max_tokens=0)},
        {"logprobs": LogprobParams(top_k=99, token_ids=(0, 9))},
        {"logprobs": LogprobParams(prompt_start=0)},
        {"logprobs": LogprobParams(prompt_start=3)},
        {"sampling": SamplingParams(max_tokens=9, logit_bias={9: 1.0}, stop_token_ids=(99,))},
    ],
)
def test_what_can_be_computed_passes(changes: dict[str, Any]) -> None:
    check(**changes)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"prompt_token_ids": []}, InvalidValue),
        ({"prompt_token_ids": [1, 10]}, InvalidValue),
        ({"prompt_token_ids": [-1]}, InvalidValue),
        ({"prompt_token_ids": [0] * 5}, ContextLengthExceeded),
        ({"sampling": SamplingParams(max_tokens=1, logit_bias={10: 1.0})}, InvalidValue),
        ({"sampling": SamplingParams(max_tokens=1, temperature=-1.0)}, InvalidValue),
        ({"sampling": SamplingParams(max_tokens=1, repetition_penalty=0.0)}, InvalidValue),
        ({"sampling": SamplingParams(max_tokens=-1)}, InvalidValue),
        ({"logprobs": LogprobParams(token_ids=(10,))}, InvalidValue),
        ({"logprobs": LogprobParams(prompt_start=-1)}, InvalidValue),
        ({"logprobs": LogprobParams(prompt_start=4)}, InvalidValue),
        ({"grammar": Grammar(GrammarKind.REGEX, "a")}, UnsupportedFeature),
        ({"lora": "a"}, UnsupportedFeature),
        ({"return_hidden_states": True}, UnsupportedFeature),
    ],
)
def test_what_cannot_be_computed_is_refused(changes: dict[str, Any], error: type[RequestError]) -> None:
    with pytest.raises(error):
        check(**changes)
