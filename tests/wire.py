"""The OpenAI answers as clients read them, and how a client joins a stream into the whole.

Written apart from the renderers on purpose: a field that goes missing or changes its type fails to decode.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.client import Reply


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class LegacyLogprobs(msgspec.Struct):
    """The four parallel arrays of completions."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]

    def __post_init__(self) -> None:
        lengths = {len(self.tokens), len(self.token_logprobs), len(self.text_offset)}
        lengths |= {len(self.top_logprobs)} if self.top_logprobs is not None else set()
        assert len(lengths) == 1, f"parallel arrays of lengths {lengths}"

    def extend(self, other: "LegacyLogprobs") -> None:
        """Append what a later event holds."""
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.text_offset += other.text_offset
        if self.top_logprobs is not None and other.top_logprobs is not None:
            self.top_logprobs += other.top_logprobs
        else:
            assert self.top_logprobs is other.top_logprobs is None


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None

    def extend(self, other: "CompletionChoice") -> None:
        """Append what a later event holds."""
        assert self.finish_reason is None, "a choice goes on after its finish"
        self.text += other.text
        self.finish_reason, self.stop_reason = other.finish_reason, other.stop_reason
        self.logprobs = joined_legacy(self.logprobs, other.logprobs)
        self.token_ids = chained(self.token_ids, other.token_ids)
        assert other.prompt_token_ids is None, "prompt ids come once"


class Completion(msgspec.Struct):
    """A whole answer of /v1/completions, or one event of its stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None

    @property
    def choice(self) -> CompletionChoice:
        """The only choice."""
        (choice,) = self.choices
        return choice


class TokenEntry(msgspec.Struct, frozen=True):
    """A token and its logprob in chat."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatEntry(TokenEntry, frozen=True):
    top_logprobs: list[TokenEntry]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatEntry]


class Message(msgspec.Struct, omit_defaults=True):
    """A chat message, or what an event adds to it."""

    role: str | None = None
    content: str | None = None


class ChatChoice(msgspec.Struct):
    index: int
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    message: Message | None = None
    delta: Message | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None

    @property
    def text(self) -> str:
        """Content, whole or new."""
        part = self.message or self.delta
        assert part is not None
        return part.content or ""

    def extend(self, other: "ChatChoice") -> None:
        """Append what a later event holds; the joined choice has a message as a whole answer has."""
        assert self.finish_reason is None, "a choice goes on after its finish"
        assert self.message is not None
        assert other.delta is not None
        assert other.delta.role is None, "the role comes once"
        self.message.content = self.text + other.text
        self.finish_reason, self.stop_reason = other.finish_reason, other.stop_reason
        self.logprobs = joined_chat(self.logprobs, other.logprobs)
        self.token_ids = chained(self.token_ids, other.token_ids)


class Chat(msgspec.Struct):
    """A whole answer of /v1/chat/completions, or one event of its stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None

    @property
    def choice(self) -> ChatChoice:
        """The only choice."""
        (choice,) = self.choices
        return choice


def joined_legacy(first: LegacyLogprobs | None, second: LegacyLogprobs | None) -> LegacyLogprobs | None:
    """Append; an event without logprobs adds none."""
    if first is None or second is None:
        return first or second
    first.extend(second)
    return first


def joined_chat(first: ChatLogprobs | None, second: ChatLogprobs | None) -> ChatLogprobs | None:
    """Append; an event without logprobs adds none."""
    if first is None or second is None:
        return first or second
    first.content += second.content
    return first


def chained(first: list[int] | None, second: list[int] | None) -> list[int] | None:
    """Append ids; an event without any adds none."""
    return first if second is None else (first or []) + second


def join_completion(events: Sequence[Any]) -> Completion:
    """Join the events of one completions stream into the whole answer, checking law 7: one end per choice."""
    chunks = [msgspec.convert(event, Completion) for event in events]
    choices: dict[int, CompletionChoice] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.index in choices:
                choices[choice.index].extend(choice)
            else:
                choices[choice.index] = choice
    ordered = [choices[index] for index in sorted(choices)]
    usage = one_end(chunks, [choice.finish_reason for choice in ordered])
    return msgspec.structs.replace(chunks[0], choices=ordered, usage=usage)


def join_chat(events: Sequence[Any]) -> Chat:
    """Join the events of one chat stream into the whole answer, checking law 7 and that each choice's role leads."""
    chunks = [msgspec.convert(event, Chat) for event in events]
    assert chunks[0].object == "chat.completion.chunk"
    choices: dict[int, ChatChoice] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.index in choices:
                choices[choice.index].extend(choice)
            else:
                assert choice.delta is not None
                assert choice.delta.role is not None
                choice.message, choice.delta = choice.delta, None
                choices[choice.index] = choice
    ordered = [choices[index] for index in sorted(choices)]
    usage = one_end(chunks, [choice.finish_reason for choice in ordered])
    return msgspec.structs.replace(chunks[0], object="chat.completion", choices=ordered, usage=usage)


def one_end(chunks: Sequence[Completion] | Sequence[Chat], reasons: Sequence[str | None]) -> Usage | None:
    """Check what all chunks of a stream share and that each choice ended; the usage, which leads nothing but the end.

    With continuous usage each chunk has one: the last counts.
    """
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert all(reason in {"stop", "length"} for reason in reasons), reasons
    assert all(chunk.choices for chunk in chunks[:-1]), "a usage chunk is the last one"
    return chunks[-1].usage


def completion(reply: Reply) -> Completion:
    """The whole answer of /v1/completions."""
    assert reply.status == 200, reply
    return msgspec.convert(reply.json, Completion)


def chat(reply: Reply) -> Chat:
    """The whole answer of /v1/chat/completions."""
    assert reply.status == 200, reply
    return msgspec.convert(reply.json, Chat)
