import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI

from app import lifespan
from app.lifespan import close_gateway, lifespan_of
from app.metrics import Metrics
from app.settings import Settings
from app.version import VERSION
from engines.errors import EngineUnavailable
from engines.protocol import EngineClient, EngineListener
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from processors.gateway import Gateway
from tests.app.layered import recorded
from tests.client import GUARD


class Watched(ScriptedEngine):
    """Counts closings; may refuse or never finish to start, or never finish to close."""

    def __init__(self, options: ScriptedOptions, fault: str = "") -> None:
        super().__init__(options)
        self.closed = 0
        self.started = asyncio.Event()
        self._fault = fault

    async def start(self, listener: EngineListener) -> None:
        self.started.set()
        if self._fault == "refuses":
            raise EngineUnavailable("the model is broken")
        if self._fault == "breaks":
            raise RuntimeError("a fault of ours")
        if self._fault == "hangs":
            await asyncio.Event().wait()
        await super().start(listener)

    async def close(self) -> None:
        self.closed += 1
        if self._fault == "stays":
            await asyncio.Event().wait()
        await super().close()


@pytest.fixture
def options(small_model_dir: Path) -> ScriptedOptions:
    return ScriptedOptions(model="own-name", tokenizer=str(small_model_dir), vocab_size=49_152)


@pytest.mark.model
@pytest.mark.parametrize(("given", "names"), [(None, ("own-name",)), ("m", ("m",))])
async def test_the_service_is_what_the_settings_say(
    options: ScriptedOptions, given: str | None, names: tuple[str, ...]
) -> None:
    engine, metrics = Watched(options), Metrics()
    settings = Settings(
        served_model_name=given,
        send_timeout=1.5,
        ping_interval=2.5,
        strict=True,
        logprobs_mode="processed_logprobs",
        max_logprobs=3,
    )
    async with lifespan_of(settings, metrics, lambda: engine)(FastAPI()) as state:
        service = state["service"]
        assert service.names == names
        assert service.version == VERSION
        assert (service.options.send_timeout, service.options.ping_interval) == (1.5, 2.5)
        assert (service.options.strict, service.options.logprobs_mode) == (True, "processed_logprobs")
        assert service.gateway.ready
        assert (metrics.model_name, metrics.engine) == (names[0], "scripted")
        closed_while_serving = engine.closed
    assert (closed_while_serving, engine.closed) == (0, 1)


@pytest.mark.parametrize(
    ("fault", "kind", "trace"), [("refuses", EngineUnavailable, False), ("breaks", RuntimeError, True)]
)
async def test_a_failed_start_says_why_and_closes_the_engine(fault: str, kind: type[Exception], trace: bool) -> None:
    engine = Watched(ScriptedOptions(), fault)
    with recorded("tailrace.lifespan") as log, pytest.raises(kind):
        async with lifespan_of(Settings(), Metrics(), lambda: engine)(FastAPI()):
            raise AssertionError("started")
    starting, record = log.records
    assert starting.getMessage() == "Starting engine local"
    assert ("the model is broken" in record.getMessage()) is not trace
    assert (record.exc_info is not None) is trace
    assert engine.closed == 1


async def test_an_engine_that_cannot_be_made_says_why() -> None:
    def make() -> EngineClient:
        raise EngineUnavailable("there is no such model")

    with recorded("tailrace.lifespan") as log, pytest.raises(EngineUnavailable):
        async with lifespan_of(Settings(), Metrics(), make)(FastAPI()):
            raise AssertionError("started")
    assert "there is no such model" in log.records[-1].getMessage()


async def test_a_cancelled_start_closes_the_engine() -> None:
    engine = Watched(ScriptedOptions(), "hangs")

    async def run() -> None:
        async with lifespan_of(Settings(), Metrics(), lambda: engine)(FastAPI()):
            raise AssertionError("started")

    task = asyncio.create_task(run())
    async with asyncio.timeout(GUARD):
        await engine.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert engine.closed == 1


async def test_an_engine_that_does_not_close_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifespan, "CLOSE_TIMEOUT", 0.01)
    engine = Watched(ScriptedOptions(), "stays")
    with recorded("tailrace.lifespan") as log:
        await close_gateway(Gateway(engine))
    assert "did not close" in log.records[-1].getMessage()
