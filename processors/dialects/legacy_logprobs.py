r"""The logprobs object of OpenAI's completions: four parallel arrays, alternatives as objects keyed by text.

A token that is no whole text is written `bytes:\xf0\x9f`, the form that OpenAI used itself. Where two ids would share
a key, the sampled one keeps it, then the more likely one; the others are written `token_id:7`. No entry is lost.
"""

from collections.abc import Sequence

from processors.delta import Logprobs
from processors.dialects.numbers import number_texts
from processors.vocabulary import Vocabulary


def token_id_key(token_id: int) -> bytes:
    """A token written as its id, a JSON literal: vLLM's form."""
    return b'"token_id:%d"' % token_id


class LegacyLogprobs:
    """Renders the object for runs of one choice; keeps the running offset."""

    def __init__(self, vocabulary: Vocabulary, *, tokens_as_token_ids: bool = False, offset: int = 0) -> None:
        self._vocabulary = vocabulary
        self._key = token_id_key if tokens_as_token_ids else self._text_key
        self._offset = offset

    def render(self, token_ids: Sequence[int], lengths: Sequence[int], logprobs: Logprobs) -> bytes:
        """The object for the next run of tokens."""
        offsets: list[int] = []
        for length in lengths:
            offsets.append(self._offset)
            self._offset += length
        values = number_texts(logprobs.values)
        alternatives = number_texts(logprobs.top_values)
        top_k = logprobs.top_k
        tops = [
            self._alternatives(
                token_id,
                values[entry],
                logprobs.top_ids[entry * top_k : (entry + 1) * top_k],
                alternatives[entry * top_k : (entry + 1) * top_k],
            )
            for entry, token_id in enumerate(token_ids)
        ]
        return (
            b'{"text_offset":['
            + b",".join(b"%d" % offset for offset in offsets)
            + b'],"token_logprobs":['
            + b",".join(values)
            + b'],"tokens":['
            + b",".join([self._key(token_id) for token_id in token_ids])
            + b'],"top_logprobs":['
            + b",".join(tops)
            + b"]}"
        )

    def _text_key(self, token_id: int) -> bytes:
        """The token's text; its id where the text could be taken for another token's id."""
        key = self._vocabulary.key(token_id)
        return token_id_key(token_id) if key.startswith(b'"token_id:') else key

    def _alternatives(self, sampled: int, value: bytes, ids: Sequence[int], values: Sequence[bytes]) -> bytes:
        sampled_key = self._key(sampled)
        taken = {sampled_key}
        parts: list[bytes] = []
        for token_id, number in zip(ids, values, strict=True):
            if token_id == sampled:
                parts.append(sampled_key + b":" + value)
                continue
            key = self._key(token_id)
            if key in taken:
                key = token_id_key(token_id)
            taken.add(key)
            parts.append(key + b":" + number)
        if sampled not in ids:
            parts.append(sampled_key + b":" + value)
        return b"{" + b",".join(parts) + b"}"
