"""Logprobs in a dialect that is not the route's own: `logprob_format` adds them beside the route's block."""

import enum

from processors.delta import Delta
from processors.dialects.numbers import FLOOR
from processors.dialects.positions import Shown
from processors.dialects.sglang_logprobs import TupleColumns, TupleLogprobs
from processors.dialects.vllm_logprobs import RankedLogprobs
from processors.json_text import dump
from processors.vocabulary import Vocabulary


class LogprobFormat(enum.StrEnum):
    """Which blocks an answer has besides its route's own."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    BOTH = "both"

    @property
    def vllm(self) -> bool:
        """Whether vLLM's objects are shown."""
        return self in {LogprobFormat.VLLM, LogprobFormat.BOTH}

    @property
    def sglang(self) -> bool:
        """Whether SGLang's tuples are shown."""
        return self in {LogprobFormat.SGLANG, LogprobFormat.BOTH}


class RankedBlock:
    """vLLM's block of one choice: `output_logprobs` and `cumulative_logprob`, a running total.

    with_prompt: `prompt_logprobs` too. A cumulative one keeps what it has shown.
    """

    def __init__(
        self, vocabulary: Vocabulary | None, shown: Shown, *, with_prompt: bool = False, cumulative: bool = False
    ) -> None:
        self._ranked = RankedLogprobs(vocabulary, shown)
        self._with_prompt = with_prompt
        self._cumulative = cumulative
        self._output: list[bytes] = []
        self._prompt: list[bytes] = []
        self._total = 0.0

    def extend(self, delta: Delta) -> None:
        """Take what is new."""
        if not self._cumulative:
            self._output, self._prompt = [], []
        if self._with_prompt:
            for piece in delta.prompt_logprobs:
                self._prompt += self._ranked.prompt(piece)
        if delta.logprobs is not None:
            self._output += self._ranked.output(delta.token_ids, delta.logprobs)
            # One after the other: a sum of sums would depend on how the tokens came grouped.
            for value in delta.logprobs.values:
                self._total += max(value, FLOOR)

    def json(self) -> bytes:
        """Members of an object, each with a comma before it."""
        members = b',"output_logprobs":[%b],"cumulative_logprob":%b' % (b",".join(self._output), dump(self._total))
        if self._prompt:
            members += b',"prompt_logprobs":[%b]' % b",".join(self._prompt)
        return members


class TupleBlock:
    """SGLang's block of one choice of a stream of deltas: a meta_info with the logprobs that are new.

    Chosen ids stand in for the likeliest ones here too.
    """

    def __init__(self, vocabulary: Vocabulary, shown: Shown) -> None:
        top_k = 0 if shown.chosen else shown.top_k
        self._tuples = TupleLogprobs(vocabulary, top_k=top_k, chosen=shown.chosen, with_text=True)
        self._with_chosen = bool(shown.chosen)

    def json(self, delta: Delta) -> bytes:
        """The member `meta_info` with a comma before it."""
        inputs, outputs = TupleColumns(), TupleColumns()
        for piece in delta.prompt_logprobs:
            inputs.extend(self._tuples.prompt(piece))
        if delta.logprobs is not None:
            outputs = self._tuples.output(delta.token_ids, delta.logprobs)
        members = inputs.json("input", with_chosen=self._with_chosen)
        members += outputs.json("output", with_chosen=self._with_chosen)
        return b',"meta_info":{' + members[1:] + b"}"
