from pathlib import Path

import pytest

from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import hub


@pytest.fixture(scope="session")
def byte_level_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The byte-level tokenizer as a directory."""
    folder = tmp_path_factory.mktemp("byte_level")
    hub(toy_tokenizers.byte_level()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def wordpiece_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The WordPiece tokenizer as a directory."""
    folder = tmp_path_factory.mktemp("wordpiece")
    hub(toy_tokenizers.wordpiece()).save_pretrained(folder)
    return folder
