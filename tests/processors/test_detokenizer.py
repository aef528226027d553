from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from processors.detokenizer import Detokenizer, TableDetokenizer, WindowDetokenizer
from processors.vocabulary import Vocabulary
from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import FAMILY, id_of, ids_of

BYTE_LEVEL = Vocabulary(toy_tokenizers.byte_level())
BYTE_LEVEL_IDS = st.lists(st.integers(0, BYTE_LEVEL.size - 1), max_size=24)
START = id_of(toy_tokenizers.byte_level(), "<|im_start|>")
WORDPIECE = toy_tokenizers.wordpiece()
WORDPIECE_SPECIAL = Vocabulary(WORDPIECE).special
WORDPIECE_IDS = st.lists(st.integers(0, WORDPIECE.get_vocab_size() - 1), max_size=30)


def read(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token, then the flush."""
    return [*(detokenizer.feed(token_id) for token_id in ids), detokenizer.flush()]


def table(vocabulary: Vocabulary = BYTE_LEVEL, *, skip_special: bool = True) -> TableDetokenizer:
    return TableDetokenizer(vocabulary, hidden=vocabulary.special if skip_special else frozenset())


def window(prefix: Sequence[int] = (), *, skip_special: bool = True) -> WindowDetokenizer:
    return WindowDetokenizer(WORDPIECE, prefix, hidden=WORDPIECE_SPECIAL if skip_special else frozenset())


@given(BYTE_LEVEL_IDS, st.booleans())
@example(ids=[0xF0, START, 0x9F, 0x8C, 0x9F], skip_special=True)
@example(ids=[0xF0, START, 0x9F, 0x8C, 0x9F], skip_special=False)
@example(ids=[0xED, 0xA0, 0x80, 0xF4, 0x90, 0x80, 0x80, 0xC0, 0xAF], skip_special=True)
def test_law_4_text_is_the_bytes_joined_and_decoded_with_errors_replaced(ids: list[int], skip_special: bool) -> None:
    shown = [token_id for token_id in ids if not (skip_special and token_id in BYTE_LEVEL.special)]
    text = "".join(read(table(skip_special=skip_special), ids))
    assert text == b"".join(BYTE_LEVEL.bytes_of[token_id] for token_id in shown).decode(errors="replace")
    assert text == toy_tokenizers.byte_level().decode(ids, skip_special_tokens=skip_special)


@pytest.mark.parametrize(
    "text", ["🌟", FAMILY, "你好漢語", "e\u0301", "🇳🇴", "a\u200db", "добрый", "\ufeffx", "\ufffd", "नमस्ते"]
)
def test_law_1_a_character_over_tokens_comes_once_and_whole(text: str) -> None:
    """TX-01: emoji joined by ZWJ, CJK, combining marks, flags; also a U+FFFD that the model really wrote."""
    for ids in (ids_of(toy_tokenizers.byte_level(), text), list(text.encode())):
        pieces = read(table(), ids)
        assert "".join(pieces) == text
        assert pieces[-1] == ""
        if "\ufffd" not in text:
            assert not any("\ufffd" in piece for piece in pieces)


@given(st.text(max_size=8), st.data())
def test_text_waits_only_for_the_end_of_its_character(text: str, data: st.DataObject) -> None:
    """After each byte, all whole characters so far are out."""
    raw = text.encode()
    detokenizer = table()
    out = ""
    for end, byte in enumerate(raw, start=1):
        out += detokenizer.feed(byte)
        assert out == raw[:end].decode(errors="ignore")


def test_an_invalid_byte_is_one_replacement_at_its_place() -> None:
    """TX-10."""
    detokenizer = table()
    assert read(detokenizer, [*b"ab", 0x9F, *b"cd"]) == ["a", "b", "\ufffd", "c", "d", ""]


def test_a_character_cut_off_at_the_end_is_one_replacement() -> None:
    assert read(table(), [*b"a", 0xF0, 0x9F, 0x8C]) == ["a", "", "", "", "\ufffd"]


def test_flush_leaves_nothing_behind() -> None:
    detokenizer = table()
    read(detokenizer, [0xF0, 0x9F])
    assert read(detokenizer, [*b"ok"]) == ["o", "k", ""]


def test_special_tokens_are_hidden_or_shown() -> None:
    assert read(table(), [ord("a"), START, ord("b")]) == ["a", "", "b", ""]
    assert read(table(skip_special=False), [ord("a"), START]) == ["a", "<|im_start|>", ""]


def test_a_hidden_token_does_not_break_the_character_around_it() -> None:
    assert read(table(), [0xC3, START, 0xA9]) == ["", "", "é", ""]


def test_a_shown_token_breaks_the_character_around_it() -> None:
    assert "".join(read(table(skip_special=False), [0xC3, START, 0xA9])) == "\ufffd<|im_start|>\ufffd"


def test_added_tokens_that_are_not_special_are_shown() -> None:
    tool = id_of(toy_tokenizers.byte_level(), "<工具 call>")
    assert read(table(), [tool]) == ["<工具 call>", ""]


def test_a_run_of_lone_continuation_bytes_is_released_byte_by_byte() -> None:
    """TX-09: nothing is held, so nothing grows."""
    detokenizer = table()
    assert [detokenizer.feed(0x80) for _ in range(8000)] == ["\ufffd"] * 8000
    assert detokenizer.flush() == ""


@given(st.text(st.sampled_from("abcdehlo. 你好漢🌟é\n\u200d")))
def test_byte_fallback_decodes_text_as_the_tokenizer_does_after_a_prompt(text: str) -> None:
    """TX-04: the space that begins the first token is text of the answer; two spaces stay two."""
    tokenizer = toy_tokenizers.byte_fallback()
    prompt = ids_of(tokenizer, "a")
    ids = ids_of(tokenizer, text)
    after_prompt = tokenizer.decode([*prompt, *ids])[len(tokenizer.decode(prompt)) :]
    assert "".join(read(table(Vocabulary(tokenizer)), ids)) == after_prompt


@given(st.text(st.sampled_from("abcdehlo. 你好")))
def test_metaspace_decodes_as_the_tokenizer_does_after_a_prompt(text: str) -> None:
    tokenizer = toy_tokenizers.metaspace()
    prompt = ids_of(tokenizer, "a")
    ids = ids_of(tokenizer, text)
    after_prompt = tokenizer.decode([*prompt, *ids])[len(tokenizer.decode(prompt)) :]
    assert "".join(read(table(Vocabulary(tokenizer)), ids)) == after_prompt


@given(WORDPIECE_IDS, WORDPIECE_IDS, st.booleans())
@example(prompt=[4], ids=[*[2] * 12, 5], skip_special=True)
@example(prompt=[4, *[0] * 12], ids=[5], skip_special=True)
def test_the_window_reads_what_the_whole_decode_adds_to_the_prompt(
    prompt: list[int], ids: list[int], skip_special: bool
) -> None:
    before = WORDPIECE.decode(prompt, skip_special_tokens=skip_special)
    whole = WORDPIECE.decode([*prompt, *ids], skip_special_tokens=skip_special)
    assert "".join(read(window(prompt, skip_special=skip_special), ids)) == whole[len(before) :]


def test_the_window_joins_word_pieces_and_cleans_up_as_the_decoder_does() -> None:
    ids = ids_of(WORDPIECE, "hello worldly.")
    assert read(window(), ids) == ["hello", " world", "ly", ".", ""]
    assert read(window(ids_of(WORDPIECE, "hello")), ids_of(WORDPIECE, "world")) == [" world", ""]


def test_the_window_hides_special_tokens_or_shows_them() -> None:
    ids = [id_of(WORDPIECE, "hello"), id_of(WORDPIECE, "[SEP]"), id_of(WORDPIECE, "world")]
    assert read(window(), ids) == ["hello", "", " world", ""]
    assert read(window(skip_special=False), ids) == ["hello", " [SEP]", " world", ""]


class CountingDecoder:
    """A tokenizer's decoder that notes how many ids it was given at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.sizes: list[int] = []

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        self.sizes.append(len(ids))
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text


@pytest.mark.parametrize("token", [0x80, 0xF0, ord("a")], ids=["continuation", "lead", "letter"])
def test_the_window_does_constant_work_per_token_whatever_comes(token: int) -> None:
    """TX-09: 8000 bytes that never become text."""
    decoder = CountingDecoder(toy_tokenizers.byte_level())
    detokenizer = WindowDetokenizer(decoder, [ord("p")] * 100)
    text = "".join(read(detokenizer, [token] * 8000))
    assert text == bytes([token] * 8000).decode(errors="replace")
    assert len(decoder.sizes) <= 2 * 8001
    assert max(decoder.sizes) <= 16


@given(st.text(max_size=12), st.text(max_size=12))
def test_the_window_holds_a_character_together(prompt: str, text: str) -> None:
    detokenizer = WindowDetokenizer(toy_tokenizers.byte_level(), list(prompt.encode()))
    assert "".join(read(detokenizer, list(text.encode()))) == text
