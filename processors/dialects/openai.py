"""What OpenAI's completions and chat answers have in common: head, finish, usage, end, error."""

from collections.abc import Sequence

import msgspec

from engines.errors import TailraceError
from engines.protocol import Finish, LogprobsMode
from processors.delta import Delta
from processors.dialects.openai_errors import error_body
from processors.dialects.renderer import AnswerHead
from processors.dialects.usage import usage_of
from processors.json_text import dump, dump_text
from processors.vocabulary import Vocabulary

DONE = b"data: [DONE]\n\n"


class OpenAIOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asked of its answer. logprobs_mode: None without logprobs; samples: choices a prompt."""

    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    tokens_as_token_ids: bool = False
    logprobs_mode: LogprobsMode | None = None
    samples: int = 1


def finish_json(finish: Finish | None) -> tuple[bytes, bytes]:
    """finish_reason and vLLM's stop_reason: the matched stop string or token id, null for the end of sequence."""
    if finish is None:
        return b"null", b"null"
    return dump_text(finish.kind.value), dump(finish.matched)


class OpenAIRenderer:
    """Base of the two: constant parts are encoded once a stream."""

    object_name = ""
    chunk_name = ""

    def __init__(self, head: AnswerHead, vocabulary: Vocabulary, options: OpenAIOptions, choices: int) -> None:
        self.vocabulary = vocabulary
        self.options = options
        self._head = head
        self._latest: list[Delta | None] = [None] * choices
        self._prefix = b"data: " + self._top(self.chunk_name) + b',"choices":['
        mode = options.logprobs_mode
        self._mark = b"" if mode is None else b',"logprobs_mode":' + dump_text(mode.value)
        self._tail = b"]" + self._mark + (b',"usage":null}\n\n' if options.include_usage else b"}\n\n")

    def _top(self, name: str) -> bytes:
        head = self._head
        return b'{"id":%b,"object":"%b","created":%d,"model":%b,"system_fingerprint":%b' % (
            dump_text(head.id),
            name.encode(),
            head.created,
            dump_text(head.model),
            dump_text(head.fingerprint),
        )

    def event(self, index: int, delta: Delta, choice: bytes) -> bytes:
        """One chunk with one choice."""
        self._latest[index] = delta
        if self.options.continuous_usage:
            usage = b',"usage":' + usage_of([delta]).json()
            return self._prefix + choice + b"]" + self._mark + usage + b"}\n\n"
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

    def body(self, choices: Sequence[bytes], deltas: Sequence[Delta], more: bytes = b"") -> bytes:
        """The whole answer around its choices."""
        usage = usage_of(deltas, self.options.samples).json()
        top = self._top(self.object_name)
        return top + b',"choices":[' + b",".join(choices) + b"]" + self._mark + b',"usage":' + usage + more + b"}"
