"""The answers of /generate as SGLang's clients read them, and what a client has at the end of a stream.

Written apart from the renderer on purpose: a field that is unknown here or changes its type fails to decode.
"""

from collections.abc import Sequence, Sized
from typing import Any, TypeAlias

import msgspec

from tests.client import Reply
from tests.serving import LiveServer

PATH = "/generate"

LogprobTuple: TypeAlias = tuple[float | None, int, str | None]
TupleList: TypeAlias = list[LogprobTuple] | None


class Stopped(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stop", tag_field="type"):
    matched: int | str | None


class Length(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="length", tag_field="type"):
    length: int


class Abort(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="abort", tag_field="type"):
    message: str
    status_code: int | None
    err_type: str | None


class Ranked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's value of one id."""

    logprob: float
    rank: int
    decoded_token: str | None


class MetaInfo(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    finish_reason: Stopped | Length | Abort | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    weight_version: str
    e2e_latency: float | None = None
    logprobs_mode: str | None = None
    input_token_logprobs: list[LogprobTuple] | None = None
    input_top_logprobs: list[TupleList] | None = None
    input_token_ids_logprobs: list[TupleList] | None = None
    output_token_logprobs: list[LogprobTuple] | None = None
    output_top_logprobs: list[TupleList] | None = None
    output_token_ids_logprobs: list[TupleList] | None = None
    output_token_logprobs_length: int | None = None
    output_logprobs: list[dict[str, Ranked]] | None = None
    cumulative_logprob: float | None = None
    prompt_logprobs: list[dict[str, Ranked] | None] | None = None
    logprobs: dict[str, list[Any]] | None = None
    hidden_states: list[list[float]] | None = None
    output_multi_ids: list[list[int]] | None = None
    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_accept_length: float | None = None
    output_extra_info: dict[str, Any] | None = None

    def extend(self, later: "MetaInfo") -> "MetaInfo":
        """What a reader of increments has after a further event: lists are appended, all else is the latest."""
        changes: dict[str, Any] = {}
        for name in self.__struct_fields__:
            before, now = getattr(self, name), getattr(later, name)
            if isinstance(before, list):
                changes[name] = before + (now or [])
            elif name == "logprobs" and before is not None:
                changes[name] = {"content": before["content"] + now["content"]}
            elif now is None and name != "finish_reason":
                changes[name] = before
        length = later.output_token_logprobs_length
        if length is not None:
            changes["output_token_logprobs_length"] = (self.output_token_logprobs_length or 0) + length
        return msgspec.structs.replace(later, **changes)


class Generated(msgspec.Struct, forbid_unknown_fields=True):
    """One sequence's answer, or one event of its stream."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | None = None

    def check(self) -> None:
        """Law 3, and that each position names the token that stands there."""
        meta = self.meta_info
        assert len(self.output_ids) == meta.completion_tokens
        if meta.output_token_logprobs is not None:
            assert [token_id for _, token_id, _ in meta.output_token_logprobs] == self.output_ids
            assert meta.output_token_logprobs_length == len(self.output_ids)
        outputs: list[Sized | None] = [meta.output_top_logprobs, meta.output_token_ids_logprobs, meta.output_logprobs]
        inputs: list[Sized | None] = [meta.input_top_logprobs, meta.input_token_ids_logprobs, meta.prompt_logprobs]
        assert all(len(column) == len(self.output_ids) for column in outputs if column)
        assert all(len(column) == len(meta.input_token_logprobs or []) for column in inputs if column)

    @property
    def timeless(self) -> "Generated":
        """Without what differs from one request to the next of the same kind."""
        return Generated(self.text, self.output_ids, msgspec.structs.replace(self.meta_info, id="", e2e_latency=None))


def generated(reply: Reply) -> list[Generated]:
    """A whole answer: its sequences, one where it is no list."""
    assert reply.status == 200, reply
    answers = msgspec.convert(reply.json, list[Generated] | Generated)
    listed = answers if isinstance(answers, list) else [answers]
    for answer in listed:
        answer.check()
        assert answer.index is None
        assert answer.meta_info.finish_reason is not None
        assert answer.meta_info.e2e_latency is not None
    return listed


def latest(events: Sequence[Any], count: int) -> list[Generated]:
    """What a reader of a cumulative stream has: each sequence's last event, of which all others are beginnings."""
    ends: list[Generated | None] = [None] * count
    for event in events:
        now = msgspec.convert(event, Generated)
        now.check()
        before = ends[now.index or 0]
        if before is not None:
            check_growth(before, now)
        ends[now.index or 0] = now
    return ended(ends)


def check_growth(before: Generated, now: Generated) -> None:
    """Law 7, and that nothing that was said is taken back."""
    assert before.meta_info.finish_reason is None, "a sequence goes on after its finish"
    assert now.text.startswith(before.text)
    assert now.output_ids[: len(before.output_ids)] == before.output_ids
    for name in MetaInfo.__struct_fields__:
        column, longer = getattr(before.meta_info, name), getattr(now.meta_info, name)
        if isinstance(column, list):
            assert longer[: len(column)] == column, name


def joined(events: Sequence[Any], count: int) -> list[Generated]:
    """What a reader of an incremental stream has: texts, ids and lists appended."""
    ends: list[Generated | None] = [None] * count
    for event in events:
        now = msgspec.convert(event, Generated)
        before = ends[now.index or 0]
        if before is not None:
            assert before.meta_info.finish_reason is None, "a sequence goes on after its finish"
            meta = before.meta_info.extend(now.meta_info)
            now = Generated(before.text + now.text, before.output_ids + now.output_ids, meta, now.index)
        ends[now.index or 0] = now
    for end in ended(ends):
        end.check()
    return ended(ends)


def ended(ends: Sequence[Generated | None]) -> list[Generated]:
    """All sequences, each with its finish."""
    answers = [end for end in ends if end is not None]
    assert len(answers) == len(ends)
    assert all(answer.meta_info.finish_reason is not None for answer in answers)
    return answers


async def thrice(live: LiveServer, body: dict[str, Any]) -> list[Generated]:
    """The answer that comes whole; law 2: both kinds of stream come to the same."""
    whole = generated(await live.client.post(PATH, body))
    for read, incremental in ((latest, False), (joined, True)):
        events = await live.client.events(PATH, body | {"incremental": incremental})
        streamed = read(events, len(whole))
        assert [answer.timeless for answer in streamed] == [answer.timeless for answer in whole], incremental
    return whole
