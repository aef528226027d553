"""Token ids to text, a token at a time, with constant work per token.

The text of all tokens joined is the full decode of their bytes with errors replaced, however they are grouped.
"""

import codecs
import itertools
from collections.abc import Sequence
from typing import Protocol

from processors.vocabulary import Vocabulary

_REPLACEMENT = "\ufffd"
_WINDOW = 8


class Detokenizer(Protocol):
    """One sequence's text so far, as a cursor."""

    def feed(self, token_id: int) -> str:
        """The text that this token completes; empty for a hidden token or a part of a character."""

    def flush(self) -> str:
        """The rest at the end of the sequence: one U+FFFD for an unfinished character, else nothing."""


class TokenDecoder(Protocol):
    """The decoding side of a `tokenizers.Tokenizer`."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of the ids."""


class TableDetokenizer:
    """For vocabularies whose tokens have bytes of their own; holds at most the 3 bytes of an unfinished character.

    `hidden` ids have no text.
    """

    def __init__(self, vocabulary: Vocabulary, *, hidden: frozenset[int] = frozenset()) -> None:
        self._texts = vocabulary.text_of
        self._bytes = vocabulary.bytes_of
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = False

    def feed(self, token_id: int) -> str:
        """The text that this token completes."""
        if token_id in self._hidden:
            return ""
        if not self._unfinished and (text := self._texts[token_id]) is not None:
            return text
        text = self._decoder.decode(self._bytes[token_id])
        self._unfinished = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """The rest at the end of the sequence."""
        self._unfinished = False
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For decoders that join tokens by context: decodes a window of the last tokens twice and takes the difference.

    `prefix` are the prompt's ids: the last of them are the context of the first token. `hidden` ids have no text and
    take no place in the window. An unfinished character is held for at most _WINDOW tokens, so a run that never becomes
    text is released and the window stays bounded.
    """

    def __init__(
        self, tokenizer: TokenDecoder, prefix: Sequence[int] = (), *, hidden: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        shown = (token_id for token_id in reversed(prefix) if token_id not in hidden)
        self._window = list(itertools.islice(shown, _WINDOW))[::-1]
        self._read = len(self._window)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def feed(self, token_id: int) -> str:
        """The text that this token completes."""
        if token_id in self._hidden:
            return ""
        self._window.append(token_id)
        text = self._unread()
        if text.endswith(_REPLACEMENT) and len(self._window) - self._read < _WINDOW:
            return ""
        self._window = self._window[-_WINDOW:]
        self._read = len(self._window)
        return text

    def _unread(self) -> str:
        before = self._decode(self._window[: self._read])
        return self._decode(self._window)[len(before) :]

    def flush(self) -> str:
        """The rest at the end of the sequence."""
        text = self._unread()
        self._read = len(self._window)
        return text
