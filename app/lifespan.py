"""What lives as long as the app: the gateway with its engine, and what the routes stand on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Protocol, TypedDict

from fastapi import FastAPI

from app.metrics import Metrics
from app.settings import Settings
from app.version import VERSION
from engines.errors import EngineUnavailable
from engines.protocol import EngineClient, LogprobsMode
from processors.gateway import Gateway
from processors.limits import Limits
from routers.service import RouteOptions, Service

logger = logging.getLogger("tailrace.lifespan")

CLOSE_TIMEOUT = 10.0
"""Seconds that the engine has to close."""


class LifespanState(TypedDict):
    """Found by routes in `request.state` and by the server, which drains the service's gateway."""

    service: Service


class Lifespan(Protocol):
    """What FastAPI calls around serving."""

    def __call__(self, app: FastAPI, /) -> AbstractAsyncContextManager[LifespanState]:
        """Enter before the first request, leave after the last."""


def lifespan_of(settings: Settings, metrics: Metrics, make_engine: Callable[[], EngineClient]) -> Lifespan:
    """The lifespan of one app: makes and starts an engine, and closes it at the end, of a failed start too."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[LifespanState]:
        logger.info("Starting engine %s", settings.engine[0])
        with failures_told():
            engine = await asyncio.to_thread(make_engine)
        gateway = make_gateway(settings, engine, metrics)
        try:
            with failures_told():
                await gateway.start()
            service = make_service(settings, gateway)
            metrics.identify(service.names[0], gateway.info.engine_id)
            yield {"service": service}
        finally:
            await close_gateway(gateway)

    return lifespan


@contextmanager
def failures_told() -> Iterator[None]:
    """Log why a start failed: in a line where it is the engine's own reason, with a trace where it is a fault."""
    try:
        yield
    except EngineUnavailable as error:
        logger.error("The engine can't start: %s", error)
        raise
    except Exception:
        logger.exception("The app can't start")
        raise


def make_gateway(settings: Settings, engine: EngineClient, metrics: Metrics) -> Gateway:
    """The gateway before an engine, bounded as the settings say."""
    return Gateway(
        engine,
        meter=metrics,
        limits=Limits(
            max_logprobs=settings.max_logprobs,
            max_logprob_entries=settings.max_logprob_entries,
            max_scoring_requests=settings.max_scoring_requests,
        ),
        skip_tokenizer=settings.skip_tokenizer_init,
    )


def make_service(settings: Settings, gateway: Gateway) -> Service:
    """What the routes get to know of a started gateway and of the settings."""
    return Service(
        gateway=gateway,
        names=(settings.served_model_name or gateway.info.model,),
        version=VERSION,
        options=RouteOptions(
            send_timeout=settings.send_timeout,
            ping_interval=settings.ping_interval,
            logprobs_mode=LogprobsMode(settings.logprobs_mode),
            strict=settings.strict,
            incremental=settings.incremental_streaming_output,
        ),
    )


async def close_gateway(gateway: Gateway) -> None:
    """Close in bounded time."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await gateway.close()
    except TimeoutError:
        logger.error("The engine did not close within %g s", CLOSE_TIMEOUT)
