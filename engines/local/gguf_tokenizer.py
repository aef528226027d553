"""A GGUF file's vocabulary as tokenizer.json and tokenizer_config.json."""

from pathlib import Path

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from engines.local.gguf_reading import GgufFile
from engines.local.load_error import ModelLoadError
from engines.local.pre_tokenizer import cut_of

CONTROL, USER_DEFINED = 3, 4
NAMED_TOKENS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def write_tokenizer(source: GgufFile, directory: Path, *, context_length: int) -> None:
    """Write both files into `directory`. ModelLoadError if the vocabulary is of a kind or cut not known here."""
    build_tokenizer(source).save(str(directory / "tokenizer.json"), pretty=False)
    tokens = source.texts("tokenizer.ggml.tokens")
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
    for name, key in NAMED_TOKENS.items():
        if (token_id := source.metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            config[name] = tokens[_as_id(token_id, len(tokens))]
    if "tokenizer.chat_template" in source.metadata:
        config["chat_template"] = source.text("tokenizer.chat_template")
    (directory / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))


def build_tokenizer(source: GgufFile) -> Tokenizer:
    """The tokenizer that the file describes; byte-level BPE only, as the others need more than a GGUF file holds."""
    kind = source.text("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelLoadError(f"tokenizers of kind {kind!r} can't be rebuilt from a GGUF file here, only 'gpt2'")
    cut = cut_of(source.text("tokenizer.ggml.pre"))
    tokens = source.texts("tokenizer.ggml.tokens")
    merges = [_pair(merge) for merge in source.texts("tokenizer.ggml.merges")]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut.ignore_merges))
    tokenizer.pre_tokenizer = cut.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if cut.normalizer is not None:
        tokenizer.normalizer = cut.normalizer
    kinds = source.integers("tokenizer.ggml.token_type")
    for token, token_kind in zip(tokens, kinds, strict=True):
        if token_kind == CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif token_kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)])
    if source.metadata.get("tokenizer.ggml.add_bos_token", False):
        bos = tokens[source.integer("tokenizer.ggml.bos_token_id")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocabulary[bos])]
        )
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _as_id(value: object, size: int) -> int:
    if not isinstance(value, int) or not 0 <= value < size:
        raise ModelLoadError(f"{value!r} is no token id of a vocabulary of {size}")
    return value
