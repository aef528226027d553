"""What is new of one sequence, dialect-neutral: the only shape that travels from the output loop to the renderers.

Deltas concatenate: merging two of them loses and doubles nothing, whatever they hold.
"""

from typing import Any

import msgspec

from engines.errors import Aborted
from engines.protocol import Finish, FinishKind, PromptLogprobs


class Logprobs(msgspec.Struct, gc=False):
    """Log-probabilities of a run of tokens, flat: top_k alternatives and `chosen` ids per entry.

    Ranks are 1-based in the whole vocabulary, 0 unknown.
    """

    values: list[float]
    ranks: list[int]
    top_k: int
    top_ids: list[int]
    top_values: list[float]
    chosen: int
    chosen_values: list[float]
    chosen_ranks: list[int]

    def extend(self, other: "Logprobs") -> None:
        """Append a later run of the same request."""
        self.values += other.values
        self.ranks += other.ranks
        self.top_ids += other.top_ids
        self.top_values += other.top_values
        self.chosen_values += other.chosen_values
        self.chosen_ranks += other.chosen_ranks

    def cut(self, length: int) -> None:
        """Keep the first `length` entries."""
        del self.values[length:], self.ranks[length:]
        del self.top_ids[length * self.top_k :], self.top_values[length * self.top_k :]
        del self.chosen_values[length * self.chosen :], self.chosen_ranks[length * self.chosen :]


class Extras(msgspec.Struct, kw_only=True):
    """What engines send beside tokens. Lists are deltas, the rest is the latest state."""

    hidden_states: list[list[float]] = []
    multi_ids: list[list[int]] = []
    extra_info: dict[str, Any] | None = None
    accepted_draft_tokens: int | None = None
    verify_steps: int | None = None
    segment: int = 0

    def extend(self, other: "Extras") -> None:
        """Append what came later."""
        self.hidden_states += other.hidden_states
        self.multi_ids += other.multi_ids
        self.extra_info = other.extra_info if other.extra_info is not None else self.extra_info
        if other.accepted_draft_tokens is not None:
            self.accepted_draft_tokens = other.accepted_draft_tokens
        if other.verify_steps is not None:
            self.verify_steps = other.verify_steps
        self.segment = other.segment

    def cut(self, surplus: int) -> None:
        """Drop the last `surplus` steps of the lists: their tokens came after a stop string."""
        if surplus:
            del self.hidden_states[-surplus:], self.multi_ids[-surplus:]


class Delta(msgspec.Struct, kw_only=True):
    """New output of one sequence.

    token_ids, lengths (code points that each token added to the uncut text) and logprobs' entries are parallel.
    The counts are totals after this delta.
    """

    text: str
    token_ids: list[int]
    lengths: list[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    logprobs: Logprobs | None = None
    prompt_logprobs: list[PromptLogprobs] = []
    finish: Finish | None = None
    extras: Extras | None = None
    embedding: list[float] | None = None
    weight_version: str = "default"
    later_texts: list[str] = []

    def extend(self, other: "Delta") -> None:
        """Append the delta that follows this one. Linear: text is joined only when settled."""
        self.later_texts.append(other.text)
        self.later_texts += other.later_texts
        self.token_ids += other.token_ids
        self.lengths += other.lengths
        self.prompt_tokens = other.prompt_tokens
        self.completion_tokens = other.completion_tokens
        self.cached_tokens = other.cached_tokens
        self.finish = other.finish
        self.weight_version = other.weight_version
        if other.logprobs is not None:
            if self.logprobs is None:
                self.logprobs = other.logprobs
            else:
                self.logprobs.extend(other.logprobs)
        self.prompt_logprobs += other.prompt_logprobs
        if other.extras is not None:
            if self.extras is None:
                self.extras = other.extras
            else:
                self.extras.extend(other.extras)
        if other.embedding is not None:
            self.embedding = other.embedding

    def settle(self) -> "Delta":
        """Join the texts of what was appended; needed before `text` is read."""
        if self.later_texts:
            self.text = "".join([self.text, *self.later_texts])
            self.later_texts = []
        return self


def abort_of(delta: Delta) -> Aborted | None:
    """The error that a delta's finish stands for where an abort is no answer; None for any other finish."""
    if delta.finish is None or delta.finish.kind is not FinishKind.ABORT:
        return None
    return Aborted(delta.finish.message or "The request was aborted.")
