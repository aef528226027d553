from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small_model_dir() -> Path:
    """The default small model, converted: from the user's cache where it is there already (else some seconds)."""
    from engines.local.conversion import convert, find_default_gguf

    return convert(find_default_gguf(), report=lambda line: None)
