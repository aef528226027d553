"""Reads GGUF files: the header in one pass, tensors on demand as float32.

Format: the GGUF specification of the ggml project (version 2 and 3, little endian). The `gguf` package reads headers
too, but wraps each of some hundred thousand strings in arrays, which takes seconds; its dequantization is used here.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from engines.local.load_error import ModelLoadError

TYPE_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
DEFAULT_ALIGNMENT = 32

Value: TypeAlias = "int | float | bool | str | list[Value]"
Values: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
T = TypeVar("T")


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies in the file. `shape` is in row-major order, slowest dimension first."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int

    @property
    def element_count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def byte_count(self) -> int:
        """Bytes that the tensor takes in the file."""
        block, size = GGML_QUANT_SIZES[self.kind]
        return self.element_count // block * size


class GgufFile:
    """A GGUF file: `metadata` by key, `tensors` by name. ModelLoadError if it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise ModelLoadError(f"{path} is empty") from error
        try:
            self._parse_header()
        except (struct.error, UnicodeDecodeError, KeyError, ValueError) as error:
            raise ModelLoadError(f"{path} is no readable GGUF file: {error}") from error

    def text(self, key: str) -> str:
        """The string under `key`; ModelLoadError if there is none."""
        return self._expect(key, str)

    def integer(self, key: str) -> int:
        """The whole number under `key`; ModelLoadError if there is none."""
        return self._expect(key, int)

    def number(self, key: str) -> float:
        """The floating point number under `key`; ModelLoadError if there is none."""
        return self._expect(key, float)

    def texts(self, key: str) -> list[str]:
        """The list of strings under `key`; ModelLoadError if there is none."""
        return [item for item in self._expect(key, list) if isinstance(item, str)]

    def integers(self, key: str) -> list[int]:
        """The list of whole numbers under `key`; ModelLoadError if there is none."""
        return [item for item in self._expect(key, list) if isinstance(item, int)]

    def read(self, tensor: GgufTensor) -> Values:
        """The tensor's values, dequantized, in its shape."""
        raw = np.frombuffer(self._data, dtype=np.uint8, count=tensor.byte_count, offset=tensor.offset)
        block, size = GGML_QUANT_SIZES[tensor.kind]
        rows = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // block * size)
        return np.asarray(dequantize(rows, tensor.kind), dtype=np.float32).reshape(tensor.shape)

    def _expect(self, key: str, kind: type[T]) -> T:
        value = self.metadata.get(key)
        if not isinstance(value, kind):
            raise ModelLoadError(f"{self.path} gives no {kind.__name__} for {key}")
        return value

    def _parse_header(self) -> None:
        if self._data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not known")
        tensor_count, pair_count = int(self._scalar("Q")), int(self._scalar("Q"))
        self.metadata: dict[str, Value] = {}
        for _ in range(pair_count):
            key = self._string()
            self.metadata[key] = self._value(int(self._scalar("I")))
        found = [self._tensor_entry() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ValueError("its alignment is no positive number")
        start = -(-self._at // alignment) * alignment
        self.tensors = {name: GgufTensor(name, shape, kind, start + offset) for name, shape, kind, offset in found}
        for tensor in self.tensors.values():
            if tensor.offset + tensor.byte_count > len(self._data):
                raise ValueError(f"it ends before {tensor.name}: the file is cut off")

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name = self._string()
        dimensions = int(self._scalar("I"))
        shape = tuple(int(self._scalar("Q")) for _ in range(dimensions))[::-1]
        kind = GGMLQuantizationType(int(self._scalar("I")))
        return name, shape, kind, int(self._scalar("Q"))

    def _value(self, kind: int) -> Value:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(TYPE_CODES[kind])
        item, count = int(self._scalar("I")), int(self._scalar("Q"))
        if item in TYPE_CODES:
            layout = f"<{count}{TYPE_CODES[item]}"
            values = struct.unpack_from(layout, self._data, self._at)
            self._at += struct.calcsize(layout)
            return list(values)
        return [self._value(item) for _ in range(count)]

    def _scalar(self, code: str) -> int | float | bool:
        layout = struct.Struct("<" + code)
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return value  # type: ignore[no-any-return]

    def _string(self) -> str:
        start = self._at + 8
        self._at = start + int.from_bytes(self._data[self._at : start], "little")
        if self._at > len(self._data):
            raise ValueError("a string runs over its end")
        return self._data[start : self._at].decode()
