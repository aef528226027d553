"""Law 4 for echoed prompts: where each token stands in the text that the client gave, or that its ids decode to."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, processors

from processors.echo import visible_lengths
from processors.gateway import detokenizer_of
from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import ids_of, text_tokenizer


def copy_of(tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(tokenizer.to_str())


def with_bos() -> Tokenizer:
    """Llama 2's: puts `<s>` before every text."""
    tokenizer = copy_of(toy_tokenizers.byte_fallback())
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def framed() -> Tokenizer:
    """BERT's: `[CLS]` before, `[SEP]` after, all in small letters."""
    tokenizer = copy_of(toy_tokenizers.wordpiece())
    frame = [(piece, toy_tokenizers.id_of(tokenizer, piece)) for piece in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def composing() -> Tokenizer:
    """Qwen's: the text is composed (NFC) first."""
    tokenizer = copy_of(toy_tokenizers.byte_level())
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": toy_tokenizers.byte_level,
    "byte_fallback": toy_tokenizers.byte_fallback,
    "unstripped": lambda: toy_tokenizers.byte_fallback(strip=False),
    "metaspace": toy_tokenizers.metaspace,
    "wordpiece": toy_tokenizers.wordpiece,
    "with_bos": with_bos,
    "framed": framed,
    "composing": composing,
}
TOKENIZERS = {name: text_tokenizer(make()) for name, make in MAKERS.items()}
PARTS = [
    *[
        "hello",
        "Hello",
        " worldly",
        "a",
        "你好",
        "🌟",
        "👨‍👩‍👧",
        "e\u0301",
        "é",
        "\u2028",
        "\ufffd",
        " ",
        "  ",
        "\n",
        ".",
        ",",
    ],
    *["<|im_end|>", "<s>", "</s>", "[SEP]", "[CLS]", "<tool>", "ß", "漢字", "\u2581", "<0xF0>"],
]
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join)


def lengths_of(name: str, text: str, ids: list[int]) -> list[int]:
    tokenizer = TOKENIZERS[name]
    return visible_lengths(text, ids, detokenizer_of(tokenizer, skip_special=False), tokenizer.vocabulary.special)


def slices_of(name: str, text: str) -> list[str]:
    """The text of each token of an encoded prompt, by the lengths alone."""
    ids = list(TOKENIZERS[name].backend.encode(text).ids)
    return cut(text, lengths_of(name, text, ids))


def cut(text: str, lengths: list[int]) -> list[str]:
    places = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
def test_the_lengths_of_a_text_add_up_to_it(name: str, text: str) -> None:
    ids = list(TOKENIZERS[name].backend.encode(text).ids)
    lengths = lengths_of(name, text, ids)
    assert len(lengths) == len(ids)
    assert all(length >= 0 for length in lengths)
    assert sum(lengths) == (len(text) if ids else 0)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_the_lengths_of_ids_add_up_to_their_decode(name: str, data: st.DataObject) -> None:
    """Any ids, parts of characters and special tokens among them."""
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary.size - 1), min_size=1, max_size=12))
    text = tokenizer.decode(ids)
    lengths = lengths_of(name, text, ids)
    assert len(lengths) == len(ids)
    assert all(length >= 0 for length in lengths)
    assert sum(lengths) == len(text)


@given(TEXTS)
def test_law_4_an_exact_tokenizer_gives_each_token_its_own_text(text: str) -> None:
    """Wherever it reads back what was written: an added token outside its alphabet does not."""
    ids = ids_of(toy_tokenizers.byte_level(), text)
    assume(TOKENIZERS["byte_level"].decode(ids) == text)
    detokenizer = detokenizer_of(TOKENIZERS["byte_level"], skip_special=False)
    own = [detokenizer.feed(token_id) for token_id in ids]
    assert slices_of("byte_level", text) == own


@pytest.mark.parametrize(("name", "added"), [("byte_fallback", 0), ("with_bos", 1)])
@given(words=st.lists(st.sampled_from(["hello", "a", "你好", "🌟", "e\u0301", "."]), min_size=1, max_size=6))
def test_law_4_an_added_space_and_an_added_token_take_no_place(name: str, added: int, words: list[str]) -> None:
    text = " ".join(words)
    ids = TOKENIZERS[name].backend.encode(text).ids
    detokenizer = detokenizer_of(TOKENIZERS[name], skip_special=False)
    own = [detokenizer.feed(token_id) for token_id in ids]
    assert own[:added] == ["<s>"] * added
    assert own[added].startswith(" ")
    assert slices_of(name, text) == [""] * added + [own[added][1:], *own[added + 1 :]]


def test_special_tokens_written_in_the_text_are_text() -> None:
    assert slices_of("byte_level", "the<|im_end|>the") == ["the", "<|im_end|>", "the"]
    assert slices_of("framed", "hello [SEP]") == ["", "hello", " [SEP]", ""]


def test_a_character_stands_with_the_token_that_completes_it() -> None:
    assert [part for part in slices_of("byte_level", "x👩y") if part] == ["x", "👩", "y"]
    assert slices_of("byte_fallback", "🌟a") == ["", "", "", "", "🌟", "a"]


def test_what_a_tokenizer_does_to_whitespace_and_case_shifts_nothing() -> None:
    assert slices_of("framed", "Hello .") == ["", "Hello", " .", ""]
    assert slices_of("framed", "hello\n\n  worldly  Hello , s") == [
        *["", "hello", "\n\n  world", "ly", "  Hello", " ,", " s", ""],
    ]


def test_a_part_of_a_character_at_the_end_of_ids_is_one_replacement() -> None:
    ids = [ord("a"), *"🌟".encode()[:2]]
    text = TOKENIZERS["byte_level"].decode(ids)
    assert cut(text, lengths_of("byte_level", text, ids)) == ["a", "", "\ufffd"]
