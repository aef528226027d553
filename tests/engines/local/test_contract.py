"""The contract over a worker process and a tiny random model; one worker serves the tests that may share it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engines.local.client import LocalEngine
from engines.local.options import LocalEngineOptions
from tests.engines.contract import EngineContract, check_rows
from tests.engines.local.tiny_models import tiny_config, tiny_model
from tests.engines.started_engine import StartedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model(tiny_config(max_position_embeddings=4096, vocab_size=300)).save_pretrained(folder)
    return folder


def options(model: Path, **changes: Any) -> LocalEngineOptions:
    return LocalEngineOptions(model=str(model), dtype="float32", threads=1, **changes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(model: Path) -> AsyncIterator[StartedEngine]:
    started = await StartedEngine.start(LocalEngine(options(model)))
    yield started
    check_rows(started.recorder)
    await started.client.close()


class TestLocalEngine(EngineContract):
    tolerance = 1e-4

    @pytest.fixture(autouse=True)
    def _know_the_model(self, model: Path) -> None:
        self._model = model

    @pytest.fixture
    def started(self, shared: StartedEngine) -> StartedEngine:
        return shared

    def make_engine(self) -> LocalEngine:
        return LocalEngine(options(self._model))

    def make_small_engine(self) -> LocalEngine:
        return LocalEngine(options(self._model, slots=1, queue_limit=1))
