"""OpenAI's usage block."""

from collections.abc import Iterable

import msgspec

from processors.delta import Delta


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one answer. Prompt and cached tokens count each prompt once, whatever n is."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def json(self) -> bytes:
        """The usage object."""
        return (
            f'{{"prompt_tokens":{self.prompt_tokens},"completion_tokens":{self.completion_tokens},'
            f'"total_tokens":{self.prompt_tokens + self.completion_tokens},'
            f'"prompt_tokens_details":{{"cached_tokens":{self.cached_tokens}}}}}'
        ).encode()


def usage_of(deltas: Iterable[Delta], samples: int = 1) -> Usage:
    """Sum the last (or whole) deltas of an answer's choices; `samples` choices share each prompt."""
    prompt = completion = cached = 0
    for index, delta in enumerate(deltas):
        completion += delta.completion_tokens
        if index % samples == 0:
            prompt += delta.prompt_tokens
            cached += delta.cached_tokens
    return Usage(prompt, completion, cached)
