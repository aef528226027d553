"""Small real tokenizers of each decoder family, built in code."""

from collections.abc import Callable
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from processors.tokenizer import TextTokenizer
from processors.vocabulary import Vocabulary, byte_alphabet

FAMILY = "👨‍👩‍👧"
TEXTS = ["the", " the", " and", "你好", "漢", "🌟", "👩", "\u200d", "é", "e\u0301", "\u2028", "\n\n"]
SPECIALS = ["<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


@cache
def byte_level() -> Tokenizer:
    """GPT-2's kind: 256 byte tokens, merges for whole and half characters, added tokens of all sorts.

    Ids 0 to 255 are the bytes themselves.
    """
    printed = {byte: character for character, byte in byte_alphabet().items()}
    vocabulary = {printed[byte]: byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    for raw in [*(text.encode() for text in TEXTS), "🌟".encode()[:2], "👨".encode()[:3], "語".encode()[1:]]:
        pieces = [printed[byte] for byte in raw]
        for end in range(1, len(pieces)):
            left = "".join(pieces[:end])
            if left + pieces[end] not in vocabulary:
                vocabulary[left + pieces[end]] = len(vocabulary)
                merges.append((left, pieces[end]))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<tool>"), AddedToken("<工具 call>"), AddedToken("ß")])
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer


@cache
def byte_fallback(*, strip: bool = True) -> Tokenizer:
    """Llama 2's kind: pieces with U+2581 for spaces and `<0xNN>` for bytes that no piece covers."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", "\u2581\u2581", *"abcdehlo.", "好"]
    merges = []
    for word in ["\u2581hello", "\u2581a", "lo", "你"]:
        for end in range(1, len(word)):
            if word[: end + 1] not in pieces:
                pieces.append(word[: end + 1])
                merges.append((word[:end], word[end]))
    pieces += [piece for piece in ["你"] if piece not in pieces]
    vocabulary = {piece: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "</s>")])
    return tokenizer


@cache
def metaspace() -> Tokenizer:
    """T5's kind: pieces with U+2581, nothing for unknown characters."""
    pieces = ["<unk>", "</s>", "\u2581", *"abcdehlo.", "\u2581hello", "\u2581a", "lo", "你好"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(place)) for place, piece in enumerate(pieces)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


@cache
def wordpiece() -> Tokenizer:
    """BERT's kind: `##` goes on a word, all else begins one, so a token's text hangs on the one before."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "##ly", "##s", ".", ",", "'", "s", "你", "a", "##a"]
    tokenizer = Tokenizer(models.WordPiece(vocab={p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")])
    return tokenizer


def hub(tokenizer: Tokenizer, *, chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers wraps it; its `save_pretrained` makes a directory that an engine can name."""
    wrap: Callable[..., PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    return wrap(tokenizer_object=tokenizer, chat_template=chat_template)


def text_tokenizer(tokenizer: Tokenizer, *, chat_template: str | None = CHAT_TEMPLATE) -> TextTokenizer:
    """The tokenizer as the processors own it."""
    return TextTokenizer(hub(tokenizer, chat_template=chat_template), Vocabulary(tokenizer))


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text, without special tokens."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def id_of(tokenizer: Tokenizer, piece: str) -> int:
    """The id of one piece of the vocabulary, added tokens included."""
    token_id: int | None = tokenizer.token_to_id(piece)
    assert token_id is not None, piece
    return token_id
