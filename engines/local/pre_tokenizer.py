"""How text is cut before byte-pair merges, by the name that a GGUF file gives (`tokenizer.ggml.pre`).

A wrong cut still decodes to the same text, so nothing downstream would notice it: names not listed are refused.
Sources: the published tokenizer.json of each family; the regular expressions are parts of the vocabularies' definition.
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from engines.local.load_error import ModelLoadError

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Cut:
    """A family's cut. `ignore_merges`: a piece that is a token as a whole is taken without merging."""

    pre_tokenizer: PreTokenizer
    normalizer: Normalizer | None = None
    ignore_merges: bool = False


def cut_of(name: str) -> Cut:
    """The cut called `name`; ModelLoadError for one that is not known."""
    match name:
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return Cut(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]))
        case "gpt-2":
            return Cut(pre_tokenizers.ByteLevel(add_prefix_space=False))
        case "llama-bpe":
            return Cut(_words(LLAMA3_WORDS), ignore_merges=True)
        case "qwen2":
            return Cut(_words(QWEN2_WORDS), normalizer=normalizers.NFC())
        case _:
            raise ModelLoadError(
                f"the pre-tokenizer {name!r} is not known here, and another would give wrong token ids unnoticed; "
                "load the model's own directory instead of its GGUF file"
            )


def _words(pattern: str) -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
