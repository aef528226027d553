"""The same request twice, streamed and whole: law 2 holds in every case that asks for both."""

from typing import Any

from tests.serving import LiveServer
from tests.wire import ChatChoice, CompletionChoice, Usage, chat, completion, join_chat, join_completion

WITH_USAGE = {"stream_options": {"include_usage": True}}


async def both_completions(live: LiveServer, body: dict[str, Any]) -> list[CompletionChoice]:
    """The only choice of the whole answer and of the joined stream, which must be equal."""
    path = "/v1/completions"
    whole = completion(await live.client.post(path, body | {"stream": False}))
    joined = join_completion(await live.client.events(path, body | WITH_USAGE))
    check_usage(whole.usage, joined.usage)
    assert joined.choice == whole.choice
    assert whole.choice.token_ids is None or len(whole.choice.token_ids) == tokens_of(whole.usage)
    assert whole.choice.logprobs is None or len(whole.choice.logprobs.tokens) == tokens_of(whole.usage)
    return [whole.choice, joined.choice]


async def both_chats(live: LiveServer, body: dict[str, Any]) -> list[ChatChoice]:
    """The same for chat."""
    path = "/v1/chat/completions"
    whole = chat(await live.client.post(path, body | {"stream": False}))
    joined = join_chat(await live.client.events(path, body | WITH_USAGE))
    check_usage(whole.usage, joined.usage)
    assert joined.choice == whole.choice
    assert joined.prompt_token_ids == whole.prompt_token_ids
    assert whole.choice.token_ids is None or len(whole.choice.token_ids) == tokens_of(whole.usage)
    assert whole.choice.logprobs is None or len(whole.choice.logprobs.content) == tokens_of(whole.usage)
    return [whole.choice, joined.choice]


def check_usage(whole: Usage | None, joined: Usage | None) -> None:
    """Both have a usage, the same one, that adds up."""
    assert whole is not None
    assert whole == joined
    assert whole.total_tokens == whole.prompt_tokens + whole.completion_tokens


def tokens_of(usage: Usage | None) -> int:
    """Tokens of the answer."""
    assert usage is not None
    return usage.completion_tokens
