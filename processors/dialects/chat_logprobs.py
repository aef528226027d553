"""The logprobs object of OpenAI's chat answers: one entry a token, with its true bytes and ordered alternatives."""

from processors.dialects.positions import Positions
from processors.vocabulary import Vocabulary


class ChatLogprobs:
    """Renders entries. The alternatives are those that were asked for, whether or not the sampled one is among them."""

    def __init__(self, vocabulary: Vocabulary, *, tokens_as_token_ids: bool = False) -> None:
        self._pieces = vocabulary.entry
        self._entry = self._named_by_id if tokens_as_token_ids else vocabulary.entry

    def render(self, positions: Positions) -> bytes:
        """The object for a run of tokens."""
        return b'{"content":[' + b",".join(self.entries(positions)) + b'],"refusal":null}'

    def entries(self, positions: Positions) -> list[bytes]:
        """Its members, one for each token."""
        width = positions.width
        tops = [
            b"%b%b%b}" % (before, number, after)
            for (before, after), number in zip(map(self._entry, positions.ids), positions.numbers, strict=True)
        ]
        entries: list[bytes] = []
        for entry, token_id in enumerate(positions.token_ids):
            before, after = self._entry(token_id)
            alternatives = b",".join(tops[entry * width : (entry + 1) * width])
            entries.append(b'%b%b%b,"top_logprobs":[%b]}' % (before, positions.values[entry], after, alternatives))
        return entries

    def _named_by_id(self, token_id: int) -> tuple[bytes, bytes]:
        return b'{"token":"token_id:%d","logprob":' % token_id, self._pieces(token_id)[1]
