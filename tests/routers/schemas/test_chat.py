from typing import Any

import pytest

from engines.errors import InvalidValue
from engines.protocol import LogprobParams, LogprobsMode
from routers.schemas.chat import ChatCompletionRequest

USER = {"role": "user", "content": "Who?"}
PART = {"role": "assistant", "content": [{"type": "text", "text": "It"}, {"type": "text", "text": "is"}]}


def request(*messages: dict[str, Any], **fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate({"messages": list(messages) or [USER]} | fields)


def wishes(**fields: Any) -> LogprobParams | None:
    body = request(**fields)
    return body.wishes(body.answer_options(LogprobsMode.RAW))


@pytest.mark.parametrize(
    ("messages", "echo", "text"),
    [
        ([USER, PART], True, "It\nis"),
        ([USER, PART], False, ""),
        ([USER, PART], None, ""),
        ([USER], True, ""),
        ([PART, USER], True, ""),
        ([USER, {"role": "assistant", "content": None}], True, ""),
    ],
)
def test_echo_is_of_a_last_message_that_the_assistant_said(messages: list[Any], echo: bool | None, text: str) -> None:
    assert request(*messages, echo=echo).echoed_text == text


def test_echo_asks_for_logprobs_of_the_prompt_too() -> None:
    """As many as for the answer, none beside the tokens' own without these; a number of its own goes before it."""
    assert wishes(echo=True) == LogprobParams(top_k=0, prompt_start=0)
    assert wishes(echo=True, logprobs=True, top_logprobs=3) == LogprobParams(top_k=3, prompt_start=0)
    options = request(echo=True, logprobs=True, top_logprobs=3, prompt_logprobs=1).answer_options(LogprobsMode.RAW)
    assert (options.logprobs, options.prompt_logprobs) == (3, 1)
    assert wishes() is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"logprobs": True, "top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 5, "prompt_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 2, "prompt_logprobs": 5}, "prompt_logprobs"),
        ({"prompt_logprobs": 5}, "prompt_logprobs"),
        ({"logprobs": True, "top_logprobs": 5, "prompt_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1, "prompt_logprobs": 5}, "top_logprobs"),
        ({}, "top_logprobs"),
    ],
)
def test_law_10_the_field_that_asks_for_most_is_the_one_that_a_refusal_names(
    fields: dict[str, Any], field: str
) -> None:
    body = request(**fields)
    assert body.generation(body.wishes(body.answer_options(LogprobsMode.RAW)), "id").called("logprobs") == field


def test_top_logprobs_need_logprobs() -> None:
    with pytest.raises(InvalidValue) as refused:
        wishes(top_logprobs=2)
    assert refused.value.param == "top_logprobs"
