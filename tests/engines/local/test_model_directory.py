import subprocess
import sys
from pathlib import Path

import pytest

from engines.local.conversion import convert
from engines.local.load_error import ModelLoadError
from engines.local.model_directory import DEFAULT_NAME, find_directory
from tests.engines.local.tiny_models import tiny_config, tiny_model, write_gguf


def quiet(line: str) -> None:
    pass


def test_a_directory_is_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "some-model").mkdir()
    assert find_directory(str(tmp_path / "some-model"), quiet) == (tmp_path / "some-model", "some-model")


def test_a_gguf_file_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gguf = tmp_path / "small.Q8.gguf"
    write_gguf(gguf, tiny_model(tiny_config()))
    lines: list[str] = []
    assert find_directory(str(gguf), lines.append) == (convert(gguf, report=quiet), "small.Q8")
    assert lines


@pytest.mark.model
def test_no_name_stands_for_the_small_model(small_model_dir: Path) -> None:
    assert find_directory(None, quiet) == (small_model_dir, DEFAULT_NAME)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("/no/such/place", "no directory /no/such/place"),
        ("./none", "no directory ./none"),
        ("/no/such.gguf", "/no/such.gguf is no file"),
        ("someone/some-model", "'someone/some-model' is no local directory, and was not fetched"),
        ("no name at all", "'no name at all' is no local directory, and was not fetched"),
    ],
)
def test_what_is_not_there_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError) as refusal:
        find_directory(source, quiet)
    assert reason in str(refusal.value)


def test_nothing_heavy_is_imported() -> None:
    loaded = "sorted({'torch', 'transformers'} & sys.modules.keys())"
    check = f"import sys; import engines.local.model_directory; print({loaded})"
    assert subprocess.check_output([sys.executable, "-c", check], text=True) == "[]\n"
