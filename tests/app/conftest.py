"""Servers with the real small model, started once for all tests of this folder that can share them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference_model import ReferenceModel
from tests.serve_process import ServeProcess, serve_process


@pytest.fixture(scope="session")
def served(small_model_dir: Path) -> Iterator[ServeProcess]:
    """The embedded engine in float32, open to all, for eight requests at once."""
    with serve_process("--dtype", "float32", "--max-running", "8") as server:
        yield server


@pytest.fixture(scope="session")
def guarded(small_model_dir: Path) -> Iterator[ServeProcess]:
    """The same with a key, for two requests at once: others wait in the engine's queue."""
    with serve_process("--dtype", "float32", "--max-running", "2", api_key="KEY") as server:
        yield server


@pytest.fixture(scope="session")
def reference(small_model_dir: Path) -> ReferenceModel:
    """The same model under transformers, in the tests' own process."""
    return ReferenceModel(small_model_dir)
