"""The vocabulary as tables, built once: token id -> bytes, text, JSON pieces.

Three families of decoders map each token to bytes of its own, whatever stands around it, and so fit a table:
byte-level (GPT-2's alphabet of 256 printable characters), byte-fallback (SentencePiece pieces with `<0xNN>` bytes) and
metaspace. Others (WordPiece, BPEDecoder) join tokens by context: `exact` is False, and text comes from the
tokenizer's own decoder; their bytes here are those of the token alone.
"""

import functools
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from tokenizers import Tokenizer

from processors.json_text import dump_text, to_keep

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"

Piece = TypeVar("Piece")


class DecoderFamily(msgspec.Struct, frozen=True):
    """How a tokenizer turns pieces into bytes."""

    byte_level: bool = False
    byte_fallback: bool = False
    metaspace: bool = False

    @property
    def exact(self) -> bool:
        """Whether each token's bytes are independent of its neighbours."""
        return self.byte_level or self.byte_fallback or self.metaspace


def decoder_family(tokenizer: Tokenizer) -> DecoderFamily:
    """Read the family from the tokenizer's own description of its decoder."""
    decoder: dict[str, Any] | None = json.loads(tokenizer.to_str()).get("decoder")
    if decoder is None:
        return DecoderFamily()
    steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return DecoderFamily(byte_level=True)
    metaspace = "Replace" in kinds or "Metaspace" in kinds
    if kinds == ["Metaspace"] and _is_context_free(steps[0]):
        return DecoderFamily(metaspace=True)
    if "ByteFallback" in kinds and all(map(_is_context_free, steps)) and "Strip" not in kinds[: _place(kinds, "Fuse")]:
        return DecoderFamily(byte_fallback=True, metaspace=metaspace)
    return DecoderFamily()


def _is_context_free(step: dict[str, Any]) -> bool:
    """Whether a decoder's step leaves each token the bytes that `piece_bytes` gives it.

    Strip only takes the space that the normalizer put before the whole text, once the pieces are fused.
    """
    match step["type"]:
        case "ByteFallback" | "Fuse":
            return True
        case "Replace":
            return bool(step["pattern"] == {"String": _METASPACE} and step["content"] == " ")
        case "Metaspace":
            return bool(step["replacement"] == _METASPACE)
        case "Strip":
            return bool(step["content"] == " " and step["stop"] == 0)
    return False


def _place(kinds: list[str], kind: str) -> int:
    return kinds.index(kind) if kind in kinds else len(kinds)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def piece_bytes(piece: str, family: DecoderFamily) -> bytes:
    """The bytes that a vocabulary piece stands for.

    A byte-level piece with a character outside the alphabet is taken literally, as the decoder does.
    """
    if family.byte_level:
        alphabet = byte_alphabet()
        if alphabet.keys() >= set(piece):
            return bytes([alphabet[character] for character in piece])
        return piece.encode()
    if family.byte_fallback and (match := _BYTE_PIECE.fullmatch(piece)):
        return bytes([int(match[1], 16)])
    if family.metaspace:
        piece = piece.replace(_METASPACE, " ")
    return piece.encode()


class Vocabulary:
    r"""Tables by token id.

    bytes_of: the token's own bytes; text_of: its text, or None where its bytes are no whole UTF-8 text;
    special: ids that skip_special_tokens hides. `size` ids exist; ids past the tokenizer's last one (models pad
    their output layer) have no bytes.

    Pieces of JSON, made when first asked for: display(id) is the token's text as a literal, broken UTF-8 as U+FFFD;
    key(id) a literal that names its bytes, the text or, where it is none, `bytes:\xf0\x9f`, the form of OpenAI's legacy
    completions; entry(id) a chat logprob entry around its number: `{"token":..,"logprob":` and `,"bytes":[..]`.
    """

    def __init__(self, tokenizer: Tokenizer, size: int | None = None) -> None:
        family = decoder_family(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self.exact = family.exact
        self.size = max(size or 0, tokenizer.get_vocab_size(with_added_tokens=True))
        self.special = frozenset(token_id for token_id, token in added.items() if token.special)
        self.bytes_of: list[bytes] = [b""] * self.size
        self.text_of: list[str | None] = [""] * self.size
        for piece, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
            if token_id < self.size:
                self.bytes_of[token_id] = piece_bytes(piece, family)
                self.text_of[token_id] = _whole_text(self.bytes_of[token_id])
        self.longest_token = max(map(len, self.bytes_of), default=1)
        self.display = _Pieces(self._make_display).__getitem__
        self.key = _Pieces(self._make_key).__getitem__
        self.entry = _Pieces(self._make_entry).__getitem__

    def _make_display(self, token_id: int) -> bytes:
        return to_keep(dump_text(self.bytes_of[token_id].decode(errors="replace")))

    def _make_key(self, token_id: int) -> bytes:
        raw = self.bytes_of[token_id]
        text = _whole_text(raw)
        return to_keep(dump_text(text if text is not None else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)))

    def _make_entry(self, token_id: int) -> tuple[bytes, bytes]:
        numbers = ",".join(map(str, self.bytes_of[token_id]))
        return b'{"token":' + self.display(token_id) + b',"logprob":', f',"bytes":[{numbers}]'.encode()


class _Pieces(dict[int, Piece]):
    """Made once for each id, then looked up by the dict itself."""

    def __init__(self, make: Callable[[int], Piece]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, token_id: int) -> Piece:
        piece = self[token_id] = self._make(token_id)
        return piece


def _whole_text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
