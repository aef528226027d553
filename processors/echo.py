"""Where each token of a prompt stands in its text."""

from collections.abc import Collection, Sequence

from processors.detokenizer import Detokenizer


def visible_lengths(
    text: str, token_ids: Sequence[int], detokenizer: Detokenizer, special: Collection[int]
) -> list[int]:
    """Code points of `text` for each token; they add up to its length.

    Tokens are laid along the text as they decode. A tokenizer may have added special tokens, which take no place, a
    leading space, which is skipped, or changed the text, where a token takes as much as it decodes to.
    """
    lengths: list[int] = []
    place = 0
    for token_id in token_ids:
        piece = detokenizer.feed(token_id)
        if text.startswith(piece, place):
            length = len(piece)
        elif piece.startswith(" ") and text.startswith(piece[1:], place):
            length = len(piece) - 1
        elif token_id in special:
            length = 0
        else:
            length = min(len(piece), len(text) - place)
        lengths.append(length)
        place += length
    if lengths:
        lengths[-1] += len(text) - place
    return lengths
