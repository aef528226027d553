from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import join_chat, join_completion

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def completion_event(tokens: list[str], offset: int, finish: str | None) -> dict[str, Any]:
    offsets = [offset + sum(map(len, tokens[:place])) for place in range(len(tokens))]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": [-1.0] * len(tokens),
        "top_logprobs": [{token: -1.0} for token in tokens],
        "text_offset": offsets,
    }
    choice = {"index": 0, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": finish}
    return {"id": "i", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


def chat_event(delta: dict[str, str], tokens: list[str], finish: str | None) -> dict[str, Any]:
    content = [{"token": token, "logprob": -1.0, "bytes": [65], "top_logprobs": []} for token in tokens]
    choice = {"index": 0, "delta": delta, "logprobs": {"content": content} if content else None}
    head = {"id": "i", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return head | {"choices": [choice | {"finish_reason": finish}]}


cut_up = st.lists(st.lists(st.sampled_from(["a", "bc", "é"]), min_size=1, max_size=3), min_size=1, max_size=5)


@given(cut_up)
def test_joined_completions_are_what_was_cut(groups: list[list[str]]) -> None:
    events, offset = [], 0
    for place, group in enumerate(groups):
        events.append(completion_event(group, offset, "stop" if place == len(groups) - 1 else None))
        offset += len("".join(group))
    tokens = [token for group in groups for token in group]
    assert join_completion(events) == join_completion([completion_event(tokens, 0, "stop")])


@given(cut_up)
def test_joined_chat_is_what_was_cut(groups: list[list[str]]) -> None:
    role = chat_event({"role": "assistant", "content": ""}, [], None)
    parts = [chat_event({"content": "".join(group)}, group, None) for group in groups]
    tokens = [token for group in groups for token in group]
    last = chat_event({}, [], "length") | {"usage": USAGE}
    whole = join_chat([role, *parts, last])
    assert whole == join_chat([role, chat_event({"content": "".join(tokens)}, tokens, None), last])
    assert (whole.object, whole.choice.text, whole.choice.finish_reason) == (
        "chat.completion",
        "".join(tokens),
        "length",
    )
    assert whole.usage is not None
    assert whole.usage.total_tokens == 7


@pytest.mark.parametrize(
    "events",
    [
        [completion_event(["a"], 0, None)],
        [completion_event(["a"], 0, "abort")],
        [completion_event(["a"], 0, "stop"), completion_event(["b"], 1, "stop")],
        [completion_event(["a"], 0, None), completion_event(["b"], 1, "stop") | {"id": "other"}],
        [completion_event(["a"], 0, "stop") | {"choices": []}, completion_event(["a"], 0, "stop")],
    ],
)
def test_a_stream_without_exactly_one_end_is_refused(events: list[Any]) -> None:
    with pytest.raises(AssertionError):
        join_completion(events)
