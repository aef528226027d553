"""The logprobs object of OpenAI's chat answers: one entry a token, with its true bytes and ordered alternatives."""

from processors.dialects.positions import Positions
from processors.vocabulary import Vocabulary


class ChatLogprobs:
    """Renders entries. The alternatives are those that were asked for, whether or not the sampled one is among them."""

    def __init__(self, vocabulary: Vocabulary, *, tokens_as_token_ids: bool = False) -> None:
        self._vocabulary = vocabulary
        self._tokens_as_token_ids = tokens_as_token_ids

    def render(self, positions: Positions) -> bytes:
        """The object for a run of tokens."""
        return b'{"content":[' + b",".join(self.entries(positions)) + b'],"refusal":null}'

    def entries(self, positions: Positions) -> list[bytes]:
        """Its members, one for each token."""
        width = positions.width
        entries: list[bytes] = []
        for entry, token_id in enumerate(positions.token_ids):
            start = entry * width
            opening, closing = self._entry(token_id)
            tops: list[bytes] = []
            for place in range(start, start + width):
                before, after = self._entry(positions.ids[place])
                tops.append(before + positions.numbers[place] + after + b"}")
            entries.append(opening + positions.values[entry] + closing + b',"top_logprobs":[' + b",".join(tops) + b"]}")
        return entries

    def _entry(self, token_id: int) -> tuple[bytes, bytes]:
        opening, closing = self._vocabulary.entry(token_id)
        if self._tokens_as_token_ids:
            return b'{"token":"token_id:%d","logprob":' % token_id, closing
        return opening, closing
