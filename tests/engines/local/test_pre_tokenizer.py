import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from engines.local.load_error import ModelLoadError
from engines.local.pre_tokenizer import cut_of

KNOWN = ["smollm", "gpt-2", "llama-bpe", "qwen2"]


def pieces(name: str, text: str) -> list[str]:
    return [piece for piece, _ in cut_of(name).pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm", ["Ġin", "Ġ", "2", "0", "2", "5", "'s", "ĠRUN", "'", "S"]),
        ("gpt-2", ["Ġin", "Ġ2025", "'s", "ĠRUN", "'", "S"]),
        ("llama-bpe", ["Ġin", "Ġ", "202", "5", "'s", "ĠRUN", "'S"]),
        ("qwen2", ["Ġin", "Ġ", "2", "0", "2", "5", "'s", "ĠRUN", "'S"]),
    ],
)
def test_numbers_and_endings_are_cut_the_family_s_way(name: str, expected: list[str]) -> None:
    assert pieces(name, " in 2025's RUN'S") == expected


@pytest.mark.parametrize("name", KNOWN)
@given(st.text())
def test_nothing_is_lost(name: str, text: str) -> None:
    assert decoders.ByteLevel().decode(pieces(name, text)) == text


def test_only_the_families_that_do_skip_merges_or_compose() -> None:
    assert [name for name in KNOWN if cut_of(name).ignore_merges] == ["llama-bpe"]
    assert [name for name in KNOWN if cut_of(name).normalizer is not None] == ["qwen2"]


def test_an_unknown_one_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelLoadError, match="'martian' is not known here, and another would give wrong token ids"):
        cut_of("martian")
