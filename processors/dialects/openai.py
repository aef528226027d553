"""What OpenAI's completions and chat answers have in common: head, finish, foreign logprobs, usage, end, error."""

from collections.abc import Sequence

import msgspec

from engines.errors import TailraceError
from engines.protocol import Finish, LogprobParams, LogprobsMode
from processors.delta import Delta
from processors.dialects.foreign_logprobs import LogprobFormat, RankedBlock, TupleBlock
from processors.dialects.openai_errors import error_body
from processors.dialects.positions import Shown
from processors.dialects.renderer import AnswerHead
from processors.dialects.usage import usage_of
from processors.dialects.vllm_logprobs import RankedLogprobs
from processors.json_text import dump, dump_text
from processors.limits import WHOLE_VOCABULARY
from processors.vocabulary import Vocabulary

DONE = b"data: [DONE]\n\n"


class OpenAIOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asked of its answer.

    logprobs: alternatives to show at each generated token, None without logprobs; prompt_logprobs: the same of vLLM's
    block for the prompt; chosen: ids shown instead of the likeliest; mode: what all of them describe.
    samples: sequences generated for a prompt, shown: how many of them are shown, the likeliest ones.
    """

    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    tokens_as_token_ids: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    chosen: tuple[int, ...] = ()
    logprob_format: LogprobFormat = LogprobFormat.OPENAI
    mode: LogprobsMode = LogprobsMode.RAW
    samples: int = 1
    shown_samples: int = 1

    @property
    def any_logprobs(self) -> bool:
        """Whether the answer has logprobs of any kind."""
        return self.logprobs is not None or self.prompt_logprobs is not None

    def wishes(self, *, prompt_start: int | None, ranked: bool) -> LogprobParams | None:
        """What the engine is asked for: once the most that any block shows. `ranked`: samples are compared."""
        if not self.any_logprobs and prompt_start is None and not ranked:
            return None
        counts = (0 if self.chosen else self.logprobs or 0, self.prompt_logprobs or 0)
        return LogprobParams(
            top_k=WHOLE_VOCABULARY if WHOLE_VOCABULARY in counts else max(counts),
            token_ids=self.chosen,
            prompt_start=prompt_start,
            mode=self.mode,
        )


def finish_json(finish: Finish | None) -> tuple[bytes, bytes]:
    """finish_reason and vLLM's stop_reason: the matched stop string or token id, null for the end of sequence."""
    if finish is None:
        return b"null", b"null"
    return dump_text(finish.kind.value), dump(finish.matched)


class OpenAIRenderer:
    """Base of the two: constant parts are encoded once a stream."""

    object_name = ""
    chunk_name = ""
    reports_aborts = False

    def __init__(self, head: AnswerHead, vocabulary: Vocabulary, options: OpenAIOptions, choices: int) -> None:
        self.vocabulary = vocabulary
        self.options = options
        self._head = head
        self._latest: list[Delta | None] = [None] * choices
        self._prefix = b"data: " + self._top(self.chunk_name) + b',"choices":['
        self._mark = b',"logprobs_mode":' + dump_text(options.mode.value) if options.any_logprobs else b""
        self._tail = b"]" + self._mark + (b',"usage":null}\n\n' if options.include_usage else b"}\n\n")
        shown = Shown(options.logprobs or 0, options.chosen)
        foreign = options.logprob_format if options.logprobs is not None else LogprobFormat.OPENAI
        self._ranked = [RankedBlock(vocabulary, shown) for _ in range(choices)] if foreign.vllm else []
        self._tuples = TupleBlock(vocabulary, shown) if foreign.sglang else None
        self._bare = not (options.any_logprobs or options.return_token_ids or options.continuous_usage)
        self._prompt_ranked: RankedLogprobs | None = None
        if options.prompt_logprobs is not None:
            self._prompt_ranked = RankedLogprobs(vocabulary, Shown(options.prompt_logprobs))

    def _top(self, name: str) -> bytes:
        head = self._head
        return b'{"id":%b,"object":"%b","created":%d,"model":%b,"system_fingerprint":%b' % (
            dump_text(head.id),
            name.encode(),
            head.created,
            dump_text(head.model),
            dump_text(head.fingerprint),
        )

    def foreign(self, index: int, delta: Delta) -> bytes:
        """The members of a choice for logprobs in other dialects, each with a comma before it."""
        members = b""
        if self._ranked:
            self._ranked[index].extend(delta)
            members += self._ranked[index].json()
        if self._tuples is not None:
            members += self._tuples.json(delta)
        return members

    def prompt_block(self, delta: Delta) -> bytes:
        """The `prompt_logprobs` of vLLM for the positions that came, with a comma before it; nothing if none came."""
        if self._prompt_ranked is None or not delta.prompt_logprobs:
            return b""
        runs = [b",".join(self._prompt_ranked.prompt(piece)) for piece in delta.prompt_logprobs]
        return b',"prompt_logprobs":[%b]' % b",".join(runs)

    def event(self, index: int, delta: Delta, choice: bytes, more: bytes = b"") -> bytes:
        """One chunk with one choice."""
        self._latest[index] = delta
        if self.options.continuous_usage:
            usage = b',"usage":' + usage_of([delta]).json()
            return self._prefix + choice + b"]" + more + self._mark + usage + b"}\n\n"
        if more:
            return self._prefix + choice + b"]" + more + self._tail[1:]
        return self._prefix + choice + self._tail

    def end(self) -> bytes:
        """The usage chunk if it was asked for, and the end mark."""
        if not self.options.include_usage:
            return DONE
        usage = usage_of([delta for delta in self._latest if delta is not None], self.options.samples)
        return self._prefix + b"]" + self._mark + b',"usage":' + usage.json() + b"}\n\n" + DONE

    def error(self, error: TailraceError) -> bytes:
        """An event with the error object, and the end mark."""
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def shown(self, deltas: Sequence[Delta]) -> list[Delta]:
        """The samples that are shown, prompt after prompt: all, or those of the highest mean logprob a token."""
        samples, count = self.options.samples, self.options.shown_samples
        if count >= samples:
            return list(deltas)
        groups = [deltas[start : start + samples] for start in range(0, len(deltas), samples)]
        return [delta for group in groups for delta in sorted(group, key=_mean_logprob, reverse=True)[:count]]

    def body(self, choices: Sequence[bytes], deltas: Sequence[Delta], more: bytes = b"") -> bytes:
        """The whole answer around its choices; the usage counts all that was generated."""
        usage = usage_of(deltas, self.options.samples).json()
        top = self._top(self.object_name)
        # One copy of what may be large.
        return b"".join([top, b',"choices":[', b",".join(choices), b"]", self._mark, b',"usage":', usage, more, b"}"])


def _mean_logprob(delta: Delta) -> float:
    values = delta.logprobs.values if delta.logprobs is not None else []
    return sum(values) / len(values) if values else 0.0
