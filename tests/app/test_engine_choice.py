from pathlib import Path

import pytest

from app.engine_choice import SCRIPTED_TEXT, choose_engine, local_options
from app.settings import InvalidSettings, Settings
from engines.errors import EngineUnavailable
from engines.local.client import LocalEngine
from engines.local.options import LocalEngineOptions
from engines.scripted.engine import ScriptedEngine
from processors.tokenizer import TextTokenizer


def test_the_default_is_the_embedded_engine_with_the_settings() -> None:
    assert isinstance(choose_engine(Settings())(), LocalEngine)
    settings = Settings(model="m", dtype="float32", device="cpu", max_model_len=9, max_running=3, max_waiting=4)
    assert local_options(settings) == LocalEngineOptions(
        model="m", dtype="float32", device="cpu", max_model_len=9, slots=3, queue_limit=4
    )
    assert local_options(Settings()) == LocalEngineOptions()


@pytest.mark.model
def test_the_scripted_engine_speaks_the_models_vocabulary(small_model_dir: Path) -> None:
    settings = Settings(engine=["scripted"], model=str(small_model_dir), scripted_step_ms=0.5, max_model_len=99)
    engine = choose_engine(settings)()
    assert isinstance(engine, ScriptedEngine)
    options = engine.options
    assert (options.step_ms, options.max_model_len) == (0.5, 99)
    tokenizer = TextTokenizer.load(options.tokenizer, options.vocab_size)
    assert tokenizer.decode(options.text_ids) == SCRIPTED_TEXT
    assert options.eos_token_ids
    tokenizer.close()


@pytest.mark.parametrize(
    ("engines", "why"),
    [
        (["http://host:1"], "http://"),
        (["tcp://host:1"], "tcp://"),
        (["Local"], "'Local'"),
        (["local", "scripted"], "several engines at once (local, scripted)"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(engines: list[str], why: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        choose_engine(Settings(engine=engines))
    assert why in str(caught.value)
    assert str(caught.value).startswith("--engine: ")


def test_a_model_that_is_not_there_is_the_engines_failure() -> None:
    make = choose_engine(Settings(engine=["scripted"], model="/no/such/model"))
    with pytest.raises(EngineUnavailable, match="/no/such/model"):
        make()


@pytest.mark.model
@pytest.mark.parametrize("content", [None, "["])
def test_scripts_that_can_not_be_read_are_the_engines_failure(
    content: str | None, small_model_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "scripts.json"
    if content is not None:
        path.write_text(content)
    make = choose_engine(Settings(engine=["scripted"], model=str(small_model_dir), scripted_file=str(path)))
    with pytest.raises(EngineUnavailable, match=f"^--scripted-file: {path}: "):
        make()
