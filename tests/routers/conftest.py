"""A stage for route tests: the scripted engine with the small model's tokenizer behind the whole app."""

from pathlib import Path

import pytest

from tests.cases.stage import Stage


@pytest.fixture
def stage(small_model_dir: Path, tmp_path: Path) -> Stage:
    return Stage(small_model_dir, tmp_path)
