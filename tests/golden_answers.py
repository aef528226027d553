"""Recorded answers of a real vLLM server, and how ours are held against them.

The rules are those of `spec/engine_wires.md`: texts, ids, counts and reasons exactly, logprobs within a tolerance,
refusals by status and `param`. Left out are files that say nothing to us: `gen_*` (vLLM has no such route) and a
stream of prompt logprobs that vLLM refuses.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.sse import strict_json
from tests.wire import (
    Chat,
    ChatChoice,
    ChatEntry,
    ChatLogprobs,
    Completion,
    CompletionChoice,
    LegacyLogprobs,
    join_chat,
    join_completion,
)

FOLDER = Path(__file__).parent / "golden"
CHAT = "/v1/chat/completions"
PromptEntry = dict[str, dict[str, Any]]
Choices = Sequence[CompletionChoice | ChatChoice]

APART = {
    "cmpl_emoji_ids_full": {"text_offset"},  # vLLM counts the placeholders of the ids instead of the text
    "cmpl_emoji_lp1_stream": {"tokens", "top_logprobs"},  # vLLM names parts of a character "", we by their bytes
    "cmpl_echo_lp1_max0": {"usage"},  # vLLM counts a token that it does not show
    "err_stream_prompt_long": {"param"},  # vLLM names `input_tokens`, which is no field of the request
}
"""What is not compared, by file."""


class Golden(msgspec.Struct, frozen=True):
    """One recording: the request and what vLLM answered."""

    name: str
    path: str
    request: dict[str, Any]
    status: int
    response: Any = None
    events: list[Any] = []

    @property
    def streamed(self) -> bool:
        """Whether the answer came in events."""
        return bool(self.events)

    @property
    def answer(self) -> Completion | Chat:
        """The answer, joined if it was streamed."""
        return read_answer(self.path, self.response, self.events[:-1])

    @property
    def prompt_logprobs(self) -> list[PromptEntry | None] | None:
        """vLLM's block for the prompt, if it was asked for; vLLM also sends it where it was not."""
        if "prompt_logprobs" not in self.request and not (self.path == CHAT and self.request.get("echo")):
            return None
        return block_of(self.response)


def block_of(response: Any) -> list[PromptEntry | None] | None:
    """The `prompt_logprobs` of an answer: on the top level in chat, else in the choice."""
    holder = response if "prompt_logprobs" in response else response["choices"][0]
    block: list[PromptEntry | None] | None = holder.get("prompt_logprobs")
    return block


def read_answer(path: str, response: Any, events: list[Any]) -> Completion | Chat:
    """A whole answer, or the joined events of a stream."""
    if path == CHAT:
        return join_chat(events) if events else msgspec.convert(response, Chat)
    return join_completion(events) if events else msgspec.convert(response, Completion)


@cache
def load() -> dict[str, Golden]:
    """All recordings by name."""
    goldens = {}
    for file in sorted(FOLDER.glob("*.json")):
        recorded = strict_json(file.read_bytes())
        goldens[file.stem] = Golden(
            file.stem,
            recorded["path"],
            recorded["request"],
            recorded["status"],
            recorded.get("response"),
            recorded.get("events", []),
        )
    return goldens


class Comparison:
    """Holds one of our answers against a recording.

    The values of the tokens that were said lie within `tolerance`; those of alternatives and of prompts, which may be
    as unlikely as can be, within `relative` of themselves more.
    """

    def __init__(self, golden: Golden, tolerance: float, relative: float = 0.0) -> None:
        self._golden = golden
        self._apart = APART.get(golden.name, set())
        self._tolerance = tolerance
        self._relative = relative
        self._echo = bool(golden.request.get("echo"))

    def answer(self, ours: Completion | Chat) -> None:
        """Counts, and each choice."""
        theirs = self._golden.answer
        if theirs.usage is not None and "usage" not in self._apart:
            assert ours.usage is not None
            assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens
            assert ours.usage.completion_tokens == theirs.usage.completion_tokens
            assert ours.usage.total_tokens == theirs.usage.total_tokens
        our_choices: Choices = ours.choices
        their_choices: Choices = theirs.choices
        for our, their in zip(our_choices, their_choices, strict=True):
            self._choice(our, their)

    def _choice(self, ours: CompletionChoice | ChatChoice, theirs: CompletionChoice | ChatChoice) -> None:
        assert (ours.index, ours.text) == (theirs.index, theirs.text)
        assert (ours.finish_reason, ours.stop_reason) == (theirs.finish_reason, theirs.stop_reason)
        assert type(ours.logprobs) is type(theirs.logprobs)
        if isinstance(ours.logprobs, LegacyLogprobs) and isinstance(theirs.logprobs, LegacyLogprobs):
            self._legacy(ours.logprobs, theirs.logprobs)
        elif isinstance(ours.logprobs, ChatLogprobs) and isinstance(theirs.logprobs, ChatLogprobs):
            self._chat(ours.logprobs, theirs.logprobs)

    def _legacy(self, ours: LegacyLogprobs, theirs: LegacyLogprobs) -> None:
        assert len(ours.tokens) == len(theirs.tokens)
        if "tokens" not in self._apart:
            assert ours.tokens == theirs.tokens
        if "text_offset" not in self._apart:
            assert ours.text_offset == theirs.text_offset
        for our, their in zip(ours.token_logprobs, theirs.token_logprobs, strict=True):
            self._value(our, their, likely=not self._echo)
        if "top_logprobs" not in self._apart:
            assert ours.top_logprobs is not None
            assert theirs.top_logprobs is not None
            for tops, others in zip(ours.top_logprobs, theirs.top_logprobs, strict=True):
                assert (tops is None) == (others is None)
                self._alternatives(tops or {}, others or {})

    def _chat(self, ours: ChatLogprobs, theirs: ChatLogprobs) -> None:
        for entry, other in zip(ours.content, theirs.content, strict=True):
            assert (entry.token, entry.bytes) == (other.token, other.bytes)
            self._value(entry.logprob, other.logprob)
            self._alternatives(named(entry), named(other))

    def param(self, ours: str | None) -> None:
        """The field that a refusal names."""
        if "param" not in self._apart:
            assert ours == self._golden.response["error"]["param"]

    def prompt(self, ours: list[PromptEntry | None] | None) -> None:
        """vLLM's block for the prompt. A rank is where the order puts it, so that only the first ones are compared."""
        theirs = self._golden.prompt_logprobs
        assert (ours is None) == (theirs is None)
        for our, their in zip(ours or [], theirs or [], strict=True):
            assert (our is None) == (their is None)
            if our is not None and their is not None:
                assert next(iter(our)) == next(iter(their)), "the prompt's own token comes first"
                self._alternatives(values_of(our), values_of(their))
                for key in our.keys() & their.keys():
                    assert our[key].keys() == their[key].keys()
                    assert our[key]["decoded_token"] == their[key]["decoded_token"]

    def _alternatives(self, ours: dict[str, float], theirs: dict[str, float]) -> None:
        """The same ones, but for those so near to each other that the numbers' precision decides."""
        assert len(ours) == len(theirs)
        for key in ours.keys() & theirs.keys():
            self._value(ours[key], theirs[key], likely=False)
        only_ours = sorted(ours[key] for key in ours.keys() - theirs.keys())
        only_theirs = sorted(theirs[key] for key in theirs.keys() - ours.keys())
        for our, their in zip(only_ours, only_theirs, strict=True):
            self._value(our, their, likely=False)

    def _value(self, ours: float | None, theirs: float | None, *, likely: bool = True) -> None:
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert abs(ours - theirs) <= self._tolerance + (0 if likely else self._relative * abs(theirs))


def named(entry: ChatEntry) -> dict[str, float]:
    """The alternatives of a chat entry by text."""
    return {top.token: top.logprob for top in entry.top_logprobs}


def values_of(entry: PromptEntry) -> dict[str, float]:
    """The logprobs of a prompt's position by id."""
    return {key: member["logprob"] for key, member in entry.items()}


def missing_keys(golden: Golden, ours: Any) -> set[str]:
    """Members that a whole recording has a value for and our answer lacks."""
    theirs = golden.response
    pairs = [(theirs, ours), (theirs["usage"], ours["usage"])]
    for their, our in zip(theirs["choices"], ours["choices"], strict=True):
        pairs.append((their, our))
        if "message" in their:
            pairs.append((their["message"], our["message"]))
    known = {key for their, our in pairs for key, value in their.items() if value is not None and key not in our}
    return known if golden.prompt_logprobs is not None else known - {"prompt_logprobs"}
