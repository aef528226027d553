"""The logprobs object of OpenAI's chat answers: one entry a token, with its true bytes and ordered alternatives."""

from collections.abc import Sequence

from processors.delta import Logprobs
from processors.dialects.numbers import number_texts
from processors.vocabulary import Vocabulary


class ChatLogprobs:
    """Renders entries. The alternatives are the k most likely tokens, whether or not the sampled one is among them."""

    def __init__(self, vocabulary: Vocabulary, *, tokens_as_token_ids: bool = False) -> None:
        self._vocabulary = vocabulary
        self._tokens_as_token_ids = tokens_as_token_ids

    def render(self, token_ids: Sequence[int], logprobs: Logprobs) -> bytes:
        """The object for a run of tokens."""
        values = number_texts(logprobs.values)
        alternatives = number_texts(logprobs.top_values)
        top_k = logprobs.top_k
        entries: list[bytes] = []
        for entry, token_id in enumerate(token_ids):
            start = entry * top_k
            opening, closing = self._entry(token_id)
            tops: list[bytes] = []
            for place in range(start, start + top_k):
                before, after = self._entry(logprobs.top_ids[place])
                tops.append(before + alternatives[place] + after + b"}")
            entries.append(opening + values[entry] + closing + b',"top_logprobs":[' + b",".join(tops) + b"]}")
        return b'{"content":[' + b",".join(entries) + b'],"refusal":null}'

    def _entry(self, token_id: int) -> tuple[bytes, bytes]:
        opening, closing = self._vocabulary.entry(token_id)
        if self._tokens_as_token_ids:
            return b'{"token":"token_id:%d","logprob":' % token_id, closing
        return opening, closing
