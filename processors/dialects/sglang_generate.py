"""SGLang's `/generate` answers: text, output_ids, meta_info; streams repeat all that came, or bring what is new.

A chunk of a cumulative stream is the answer so far. Its parts are rendered once and kept, so that a chunk costs the
copy of its bytes and no more.
"""

import time
from collections.abc import Sequence

import msgspec

from engines.errors import TailraceError
from engines.protocol import Finish, FinishKind, LogprobParams
from processors.delta import Delta, Extras
from processors.dialects.chat_logprobs import ChatLogprobs
from processors.dialects.foreign_logprobs import LogprobFormat, RankedBlock
from processors.dialects.openai_errors import error_body
from processors.dialects.positions import Shown, output_positions
from processors.dialects.sglang_logprobs import TupleColumns, TupleLogprobs
from processors.json_text import dump, dump_text, to_keep
from processors.vocabulary import Vocabulary

DONE = b"data: [DONE]\n\n"


class GenerateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asked of its answer.

    logprobs: None without; with_text: tuples have the token's text; incremental: streams bring what is new;
    arrival: seconds on the monotonic clock.
    """

    logprobs: LogprobParams | None = None
    logprob_format: LogprobFormat = LogprobFormat.SGLANG
    with_text: bool = False
    incremental: bool = False
    hidden_states: bool = False
    arrival: float = 0.0


def finish_json(finish: Finish | None, completion_tokens: int) -> bytes:
    """SGLang's finish_reason: null while running, else an object."""
    if finish is None:
        return b"null"
    if finish.kind is FinishKind.STOP:
        return dump({"type": "stop", "matched": finish.matched})
    if finish.kind is FinishKind.LENGTH:
        return dump({"type": "length", "length": completion_tokens})
    message = finish.message or "The request was aborted."
    return dump({"type": "abort", "message": message, "status_code": None, "err_type": None})


class GenerateAnswer:
    """One sequence's answer so far. Without a vocabulary (raw-token mode) no text is shown."""

    def __init__(self, rid: str, vocabulary: Vocabulary | None, options: GenerateOptions) -> None:
        self._rid = to_keep(dump_text(rid))
        self._options = options
        self._text: list[str] = []
        self._ids: list[bytes] = []
        self._output = TupleColumns()
        self._input = TupleColumns()
        self._hidden: list[bytes] = []
        self._multi: list[bytes] = []
        self._latest: Delta | None = None
        self._extras: Extras | None = None
        wishes = options.logprobs or LogprobParams()
        self._shown = Shown(wishes.top_k, wishes.token_ids)
        self._tuples = TupleLogprobs(
            vocabulary, top_k=wishes.top_k, chosen=wishes.token_ids, with_text=options.with_text
        )
        self._ranked: RankedBlock | None = None
        if options.logprob_format.vllm:
            cumulative = not options.incremental
            self._ranked = RankedBlock(vocabulary, self._shown, with_prompt=True, cumulative=cumulative)
        self._entries: list[bytes] = []
        self._chat: ChatLogprobs | None = None
        if options.logprob_format is LogprobFormat.OPENAI and vocabulary is not None:
            self._chat = ChatLogprobs(vocabulary)

    def extend(self, delta: Delta) -> None:
        """Take what is new; an incremental stream forgets what it has shown."""
        if self._options.incremental:
            self._text, self._ids = [], []
            self._input, self._output = TupleColumns(), TupleColumns()
            self._hidden, self._multi, self._entries = [], [], []
        self._latest = delta
        self._text.append(delta.text)
        self._ids += [b"%d" % token_id for token_id in delta.token_ids]
        if delta.extras is not None:
            self._hidden += [to_keep(dump(states)) for states in delta.extras.hidden_states]
            self._multi += [to_keep(dump(ids)) for ids in delta.extras.multi_ids]
            self._extras = latest_extras(self._extras, delta.extras)
        if self._options.logprobs is not None:
            self._extend_logprobs(delta)

    def _extend_logprobs(self, delta: Delta) -> None:
        for piece in delta.prompt_logprobs:
            self._input.extend(self._tuples.prompt(piece))
        if delta.logprobs is not None:
            self._output.extend(self._tuples.output(delta.token_ids, delta.logprobs))
            if self._chat is not None:
                self._entries += self._chat.entries(output_positions(delta.token_ids, delta.logprobs, self._shown))
        if self._ranked is not None:
            self._ranked.extend(delta)

    def json(self, index: int | None) -> bytes:
        """The answer so far as an object."""
        opening = b"" if index is None else b'"index":%d,' % index
        return b'{%b"text":%b,"output_ids":[%b],"meta_info":{%b}}' % (
            opening,
            dump_text("".join(self._text)),
            b",".join(self._ids),
            self._meta(),
        )

    def _meta(self) -> bytes:
        latest = self._latest
        assert latest is not None
        meta = b'"id":%b,"finish_reason":%b,"prompt_tokens":%d,"completion_tokens":%d,"cached_tokens":%d' % (
            self._rid,
            finish_json(latest.finish, latest.completion_tokens),
            latest.prompt_tokens,
            latest.completion_tokens,
            latest.cached_tokens,
        )
        meta += b',"weight_version":' + dump_text(latest.weight_version)
        if latest.finish is not None:
            meta += b',"e2e_latency":' + dump(time.monotonic() - self._options.arrival)
        wishes = self._options.logprobs
        if wishes is not None:
            meta += b',"logprobs_mode":' + dump_text(wishes.mode.value)
            chosen = bool(wishes.token_ids)
            meta += self._input.json("input", with_chosen=chosen) + self._output.json("output", with_chosen=chosen)
            meta += b',"output_token_logprobs_length":%d' % len(self._output.token)
            if self._ranked is not None:
                meta += self._ranked.json()
            if self._chat is not None:
                meta += b',"logprobs":{"content":[%b]}' % b",".join(self._entries)
        if self._options.hidden_states:
            meta += b',"hidden_states":[%b]' % b",".join(self._hidden)
        if self._multi:
            meta += b',"output_multi_ids":[%b]' % b",".join(self._multi)
        return meta if self._extras is None else meta + extras_json(self._extras, latest.completion_tokens)


def latest_extras(before: Extras | None, now: Extras) -> Extras:
    """The latest of each state; the lists are rendered apart."""
    states = Extras(
        extra_info=now.extra_info,
        accepted_draft_tokens=now.accepted_draft_tokens,
        verify_steps=now.verify_steps,
        segment=now.segment,
    )
    if before is None:
        return states
    before.extend(states)
    return before


def extras_json(extras: Extras, completion_tokens: int) -> bytes:
    """Speculative decoding's counts under SGLang's names, and whatever else the engine said."""
    meta = b""
    if extras.verify_steps is not None:
        meta += b',"spec_verify_ct":%d' % extras.verify_steps
    if extras.accepted_draft_tokens is not None:
        meta += b',"spec_num_correct_drafts":%d' % extras.accepted_draft_tokens
        if extras.verify_steps:
            meta += b',"spec_accept_length":' + dump(completion_tokens / extras.verify_steps)
    if extras.extra_info is not None:
        meta += b',"output_extra_info":' + dump(extras.extra_info)
    return meta


class GenerateRenderer:
    """Renders one request, single or a batch: one member of `answers` for each choice.

    listed: the answer is a list (a batch, or n > 1), and chunks carry an index.
    """

    reports_aborts = True

    def __init__(self, answers: Sequence[GenerateAnswer], *, listed: bool) -> None:
        self._answers = answers
        self._listed = listed

    def start(self) -> bytes:
        """Nothing: the first delta opens the stream."""
        return b""

    def delta(self, index: int, delta: Delta) -> bytes:
        """One chunk."""
        answer = self._answers[index]
        answer.extend(delta)
        return b"data: " + answer.json(index if self._listed else None) + b"\n\n"

    def end(self) -> bytes:
        """The end mark."""
        return DONE

    def error(self, error: TailraceError) -> bytes:
        """An event with the error object, and the end mark."""
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """The object, or the list of them."""
        for answer, delta in zip(self._answers, deltas, strict=True):
            answer.extend(delta)
        objects = [answer.json(None) for answer in self._answers]
        return b"[" + b",".join(objects) + b"]" if self._listed else objects[0]
