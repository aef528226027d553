r"""The logprobs object of OpenAI's completions: four parallel arrays, alternatives as objects keyed by text.

A token that is no whole text is written `bytes:\xf0\x9f`, the form that OpenAI used itself. Where two ids would share
a key, the token that stands there keeps it, then the one shown first; the others are written `token_id:7`. No entry
is lost.
"""

from collections.abc import Iterable, Sequence

import msgspec

from processors.dialects.positions import Positions
from processors.vocabulary import Vocabulary


def token_id_key(token_id: int) -> bytes:
    """A token written as its id, a JSON literal: vLLM's form."""
    return b'"token_id:%d"' % token_id


class LegacyColumns(msgspec.Struct):
    """The four arrays, each member the JSON of a run: long prompts come in many, single tokens would weigh more."""

    offsets: list[bytes] = []
    values: list[bytes] = []
    tokens: list[bytes] = []
    alternatives: list[bytes] = []

    def json(self) -> bytes:
        """The object."""
        return b'{"text_offset":[%b],"token_logprobs":[%b],"tokens":[%b],"top_logprobs":[%b]}' % (
            b",".join(self.offsets),
            b",".join(self.values),
            b",".join(self.tokens),
            b",".join(self.alternatives),
        )


class LegacyLogprobs:
    """Renders runs of one choice, the prompt's first if it is echoed; keeps the running offset."""

    def __init__(self, vocabulary: Vocabulary, *, tokens_as_token_ids: bool = False, offset: int = 0) -> None:
        self._vocabulary = vocabulary
        self._key = token_id_key if tokens_as_token_ids else self._text_key
        self._offset = offset

    def add(
        self, columns: LegacyColumns, lengths: Iterable[int], positions: Positions, absent: Sequence[int] = ()
    ) -> None:
        """Append a run to the arrays. The tokens `absent` lead it without logprobs: null stands for these."""
        if not absent and not positions.token_ids:
            return
        offsets: list[bytes] = []
        for length in lengths:
            offsets.append(b"%d" % self._offset)
            self._offset += length
        nulls = [b"null"] * len(absent)
        width = positions.width
        alternatives = [
            self._alternatives(
                token_id,
                positions.values[entry],
                positions.ids[entry * width : (entry + 1) * width],
                positions.numbers[entry * width : (entry + 1) * width],
            )
            for entry, token_id in enumerate(positions.token_ids)
        ]
        columns.offsets.append(b",".join(offsets))
        columns.values.append(b",".join([*nulls, *positions.values]))
        columns.tokens.append(b",".join([self._key(token_id) for token_id in (*absent, *positions.token_ids)]))
        columns.alternatives.append(b",".join([*nulls, *alternatives]))

    def single(self, length: int, positions: Positions) -> bytes:
        """The object for one position: what `add` makes of it, the most frequent run, without the arrays."""
        offset, self._offset = self._offset, self._offset + length
        (token_id,) = positions.token_ids
        (value,) = positions.values
        return b'{"text_offset":[%d],"token_logprobs":[%b],"tokens":[%b],"top_logprobs":[%b]}' % (
            offset,
            value,
            self._key(token_id),
            self._alternatives(token_id, value, positions.ids, positions.numbers),
        )

    def _text_key(self, token_id: int) -> bytes:
        """The token's text; its id where the text could be taken for another token's id."""
        key = self._vocabulary.key(token_id)
        return token_id_key(token_id) if key.startswith(b'"token_id:') else key

    def _alternatives(self, here: int, value: bytes, ids: Sequence[int], values: Sequence[bytes]) -> bytes:
        """One position's object. The token that stands there shows its own value, wherever it is among the others."""
        if not ids:
            return b"{%b:%b}" % (self._key(here), value)
        if here in ids:
            place = ids.index(here)
            ids, values = list(ids), [*values[:place], value, *values[place + 1 :]]
        else:
            ids, values = [*ids, here], [*values, value]
        keys = [self._key(token_id) for token_id in ids]
        if len(set(keys)) < len(keys):
            keys = self._told_apart(here, ids, keys)
        return b"{" + b",".join([b"%b:%b" % member for member in zip(keys, values, strict=True)]) + b"}"

    def _told_apart(self, here: int, ids: Sequence[int], keys: Sequence[bytes]) -> list[bytes]:
        """Keys of which no two are alike: who comes late to one is named by its id."""
        taken = {self._key(here)}
        distinct: list[bytes] = []
        for token_id, key in zip(ids, keys, strict=True):
            own = token_id_key(token_id) if token_id != here and key in taken else key
            taken.add(own)
            distinct.append(own)
        return distinct
