"""A vocabulary made to collide: ids without bytes, one byte under two ids, texts that look like other keys."""

from tokenizers import AddedToken, Tokenizer

from processors.vocabulary import Vocabulary
from tests.processors import toy_tokenizers

_tokenizer = Tokenizer.from_str(toy_tokenizers.byte_level().to_str())
EMPTY = _tokenizer.get_vocab_size() + 3
"""The first of some ids past the tokenizer's last one."""
_tokenizer.add_tokens([AddedToken(f"token_id:{EMPTY + 1}"), AddedToken(r"bytes:\xf0"), AddedToken("a\u2028b")])

TOKENIZER = _tokenizer
VOCABULARY = Vocabulary(_tokenizer, EMPTY + 4)
LIKE_AN_ID = EMPTY - 3
LIKE_A_BYTE = EMPTY - 2
BREAK = EMPTY - 1
COLLIDING = [
    EMPTY,
    EMPTY + 1,
    EMPTY + 2,
    LIKE_AN_ID,
    LIKE_A_BYTE,
    BREAK,
    0xF0,
    0xDF,
    toy_tokenizers.id_of(TOKENIZER, "ß"),
]
