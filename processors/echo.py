"""Where each token of a prompt stands in its text."""

from collections.abc import Collection, Sequence

from processors.detokenizer import Detokenizer


def visible_lengths(
    text: str, token_ids: Sequence[int], detokenizer: Detokenizer, special: Collection[int]
) -> list[int]:
    """Code points of `text` for each token; they add up to its length.

    Tokens are laid along the text as they decode. A tokenizer may have added special tokens, which take no place, added
    or dropped whitespace, where a token takes what the text has before its own characters, or changed the text, where
    a token takes as much as it decodes to.
    """
    lengths: list[int] = []
    place = 0
    for token_id in token_ids:
        piece = detokenizer.feed(token_id)
        if text.startswith(piece, place):
            length = len(piece)
        else:
            start, own = _skip_whitespace(text, place), piece.lstrip()
            hidden = token_id in special and not text.startswith(own, start)
            length = 0 if hidden else min(start + len(own), len(text)) - place
        lengths.append(length)
        place += length
    if lengths:
        lengths[-1] += len(text) - place
    return lengths


def _skip_whitespace(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place
