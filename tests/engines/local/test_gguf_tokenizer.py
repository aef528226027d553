import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engines.local.gguf_reading import GgufFile
from engines.local.gguf_tokenizer import build_tokenizer, write_tokenizer
from engines.local.load_error import ModelLoadError
from tests.engines.local.tiny_models import TOKENS, tiny_config, tiny_model, write_gguf


def gguf(tmp_path: Path, **changes: str) -> GgufFile:
    write_gguf(tmp_path / "m.gguf", tiny_model(tiny_config()), **changes)  # type: ignore[arg-type]
    return GgufFile(tmp_path / "m.gguf")


def test_vocabulary_merges_and_special_tokens(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(gguf(tmp_path))
    assert [tokenizer.id_to_token(token_id) for token_id in range(len(TOKENS))] == TOKENS
    encoded = tokenizer.encode("<|start|>abc12<|end|>")
    assert encoded.tokens == ["<|start|>", "ab", "c", "1", "2", "<|end|>"]
    assert tokenizer.decode(encoded.ids) == "abc12"


def test_files(tmp_path: Path) -> None:
    write_tokenizer(gguf(tmp_path), tmp_path, context_length=96)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 96,
        "clean_up_tokenization_spaces": False,
        "bos_token": "<|start|>",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "chat_template": "{{ messages[0].content }}",
    }
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == len(TOKENS)


def test_other_kinds_of_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="tokenizers of kind 'llama'"):
        build_tokenizer(gguf(tmp_path, tokenizer="llama"))


def test_an_unknown_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="pre-tokenizer 'martian'"):
        build_tokenizer(gguf(tmp_path, pre="martian"))


@pytest.mark.model
def test_the_small_model_s_ids(small_model_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(small_model_dir / "tokenizer.json"))
    assert tokenizer.encode("The capital of France is").ids == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("in 2025").tokens == ["in", "Ġ", "2", "0", "2", "5"]
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1
    for text in ("12 345", "世界 🦀", "a\n\n  b\t"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
