import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from processors.vocabulary import Vocabulary, byte_alphabet, decoder_family
from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import id_of, ids_of
from tests.sse import strict_json

BYTE_LEVEL = Vocabulary(toy_tokenizers.byte_level())


def with_decoder(decoder: decoders.Decoder | None) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "\u2581b": 1, "_c": 2}, unk_token="a"))
    if decoder is not None:
        tokenizer.decoder = decoder
    return tokenizer


def test_the_byte_alphabet_is_a_bijection() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_each_byte_has_its_token() -> None:
    assert [BYTE_LEVEL.bytes_of[byte] for byte in range(256)] == [bytes([byte]) for byte in range(256)]


@given(st.text(st.characters(codec="utf-8", exclude_characters="ß")))
def test_law_4_bytes_of_byte_level_tokens_joined_are_the_text(text: str) -> None:
    tokenizer = toy_tokenizers.byte_level()
    assert b"".join(BYTE_LEVEL.bytes_of[token_id] for token_id in ids_of(tokenizer, text)) == text.encode()


@given(st.text(st.sampled_from("abcdehlo. 你好漢🌟é\n")))
def test_law_4_bytes_of_byte_fallback_tokens_joined_are_the_text_after_its_added_space(text: str) -> None:
    tokenizer = toy_tokenizers.byte_fallback()
    vocabulary = Vocabulary(tokenizer)
    joined = b"".join(vocabulary.bytes_of[token_id] for token_id in ids_of(tokenizer, text))
    assert joined == (" " + text if text else "").encode()


def test_a_star_over_three_tokens_keeps_its_bytes() -> None:
    """The star of the wire formats: bytes [240,159],[140],[159] in sum, never [239,191,189]."""
    ids = [id_of(toy_tokenizers.byte_level(), "ðŁ"), 140, 159]
    assert [list(BYTE_LEVEL.bytes_of[token_id]) for token_id in ids] == [[240, 159], [140], [159]]
    assert [BYTE_LEVEL.text_of[token_id] for token_id in ids] == [None] * 3


def test_added_tokens_are_what_the_tokenizer_decodes_them_to() -> None:
    tokenizer = toy_tokenizers.byte_level()
    for piece in ["<tool>", "<工具 call>", "ß", "<|im_start|>"]:
        token_id = id_of(tokenizer, piece)
        shown = tokenizer.decode([token_id], skip_special_tokens=False)
        assert BYTE_LEVEL.bytes_of[token_id].decode(errors="replace") == shown


def test_only_special_tokens_are_hidden() -> None:
    tokenizer = toy_tokenizers.byte_level()
    assert {id_of(tokenizer, piece) for piece in toy_tokenizers.SPECIALS} == BYTE_LEVEL.special


def test_ids_that_pad_the_output_layer_exist_and_have_no_bytes() -> None:
    size = toy_tokenizers.byte_level().get_vocab_size() + 64
    vocabulary = Vocabulary(toy_tokenizers.byte_level(), size)
    assert vocabulary.size == size
    assert vocabulary.bytes_of[size - 1] == b""
    assert vocabulary.display(size - 1) == b'""'
    assert strict_json(b'{"token":' + vocabulary.key(size - 1) + b"}") == {"token": ""}


def test_a_tokenizer_larger_than_the_model_says_keeps_all_its_ids() -> None:
    assert Vocabulary(toy_tokenizers.byte_level(), 10).size == toy_tokenizers.byte_level().get_vocab_size()


def test_the_longest_token_bounds_every_token() -> None:
    assert BYTE_LEVEL.longest_token == max(map(len, BYTE_LEVEL.bytes_of)) > 4


@pytest.mark.parametrize("token_id", range(BYTE_LEVEL.size))
def test_law_6_json_pieces_are_strict_and_of_one_line(token_id: int) -> None:
    raw = BYTE_LEVEL.bytes_of[token_id]
    opening, closing = BYTE_LEVEL.entry(token_id)
    entry = opening + b"-0.5" + closing + b"}"
    for piece in (BYTE_LEVEL.display(token_id), BYTE_LEVEL.key(token_id), entry):
        assert len(piece.decode().splitlines()) == 1
    assert strict_json(entry) == {"token": raw.decode(errors="replace"), "logprob": -0.5, "bytes": list(raw)}
    assert json.loads(BYTE_LEVEL.display(token_id)) == raw.decode(errors="replace")


def test_keys_name_bytes_where_the_token_is_no_text() -> None:
    assert json.loads(BYTE_LEVEL.key(id_of(toy_tokenizers.byte_level(), "ðŁ"))) == r"bytes:\xf0\x9f"
    assert json.loads(BYTE_LEVEL.key(id_of(toy_tokenizers.byte_level(), "Ġthe"))) == " the"


def test_keys_of_different_byte_tokens_differ() -> None:
    assert len({BYTE_LEVEL.key(byte) for byte in range(256)}) == 256


def test_pieces_are_the_same_when_asked_again() -> None:
    vocabulary = Vocabulary(toy_tokenizers.byte_level())
    for ask in (vocabulary.display, vocabulary.key, vocabulary.entry):
        assert ask(7) == ask(7)


@pytest.mark.parametrize(
    ("tokenizer", "exact"),
    [
        (toy_tokenizers.byte_level(), True),
        (toy_tokenizers.byte_fallback(), True),
        (toy_tokenizers.byte_fallback(strip=False), True),
        (toy_tokenizers.metaspace(), True),
        (toy_tokenizers.wordpiece(), False),
        (with_decoder(None), False),
        (with_decoder(decoders.BPEDecoder()), False),
        (with_decoder(decoders.Metaspace(replacement="_")), False),
        (
            with_decoder(decoders.Sequence([decoders.Replace("_", " "), decoders.ByteFallback(), decoders.Fuse()])),
            False,
        ),
        (with_decoder(decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip("a", 0, 1)])), False),
        (with_decoder(decoders.Sequence([decoders.ByteFallback(), decoders.Strip(" ", 1, 0), decoders.Fuse()])), False),
    ],
    ids=[
        "byte_level",
        "llama",
        "gemma",
        "metaspace",
        "wordpiece",
        "none",
        "bpe",
        "odd_space",
        "odd_replace",
        "odd_strip",
        "early_strip",
    ],
)
def test_only_decoders_that_join_without_context_are_exact(tokenizer: Tokenizer, exact: bool) -> None:
    assert decoder_family(tokenizer).exact is exact


def test_a_byte_fallback_piece_is_a_byte_only_in_its_full_form() -> None:
    tokenizer = toy_tokenizers.byte_fallback()
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.bytes_of[id_of(tokenizer, "<0xF0>")] == b"\xf0"
    extended = Tokenizer.from_str(tokenizer.to_str())
    extended.add_tokens([AddedToken("<0xF0>x")])
    assert Vocabulary(extended).bytes_of[id_of(extended, "<0xF0>x")] == b"<0xF0>x"


def test_law_12_pieces_of_json_that_are_kept_are_small() -> None:
    vocabulary = Vocabulary(toy_tokenizers.byte_level())
    tracemalloc.start()
    try:
        for token_id in range(vocabulary.size):
            assert vocabulary.display(token_id) is vocabulary.display(token_id)
            assert vocabulary.key(token_id)
            assert vocabulary.entry(token_id)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 1000 * vocabulary.size
