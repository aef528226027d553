"""Where a model's files are, whatever way it is named. Imports neither torch nor transformers."""

from pathlib import Path

from engines.local.conversion import Report, convert, find_default_gguf
from engines.local.load_error import ModelLoadError

DEFAULT_NAME = "SmolLM2-135M-Instruct"
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def find_directory(source: str | None, report: Report) -> tuple[Path, str]:
    """The local directory of the model and its name, after converting or downloading it where needed."""
    if source is None:
        return convert(find_default_gguf(), report=report), DEFAULT_NAME
    path = Path(source).expanduser()
    if path.is_dir():
        return path, path.resolve().name
    if path.suffix == ".gguf" or path.is_file():
        return convert(path, report=report), path.stem
    if path.is_absolute() or source.startswith("."):
        raise ModelLoadError(f"there is no directory {source}")
    return _fetch(source, report), path.name


def _fetch(name: str, report: Report) -> Path:
    from huggingface_hub import snapshot_download

    report(f"fetching {name}")
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{name!r} is no local directory, and was not fetched from the hub: {error}") from error
