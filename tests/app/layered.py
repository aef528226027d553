"""A small app under all layers of the real one, with routes that do what the layers have to bear."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send

from app.error_handlers import add_error_handlers
from app.exposition import metrics_router
from app.factory import add_layers
from app.settings import Settings
from engines.errors import InvalidValue, Overloaded
from tests.client import GUARD, Client
from tests.listening import Listening, listen

SECRET = "the cause of the fault"


class TrickleResponse(Response):
    """Sends one event, then waits for the client to leave or, with `fail`, fails."""

    def __init__(self, *, fail: bool = False) -> None:
        super().__init__()
        self._fail = fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        if self._fail:
            raise RuntimeError(SECRET)
        while (await receive())["type"] != "http.disconnect":
            pass


def add_routes(app: FastAPI) -> None:
    """The routes."""

    @app.get("/health")
    @app.get("/live")
    @app.get("/ready")
    @app.get("/ping")
    @app.get("/version")
    async def is_open() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/size")
    async def size(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    @app.post("/parsed")
    async def parsed(prompt: Annotated[str, Body()], count: Annotated[int, Body()] = 1) -> dict[str, Any]:
        return {"prompt": prompt, "count": count}

    @app.get("/id")
    async def request_id(request: Request) -> dict[str, str]:
        return {"id": request.state.request_id}

    @app.get("/items/{name}")
    async def item(name: str) -> dict[str, str]:
        return {"name": name}

    @app.get("/invalid")
    async def invalid() -> None:
        raise InvalidValue("no good", param="temperature")

    @app.get("/busy")
    async def busy() -> None:
        raise Overloaded("busy", retry_after=1.2)

    @app.get("/fault")
    async def fault() -> None:
        raise RuntimeError(SECRET)

    @app.get("/trickle")
    async def trickle() -> Response:
        return TrickleResponse()

    @app.get("/late-fault")
    async def late_fault() -> Response:
        return TrickleResponse(fail=True)


def layered_app(**settings: Any) -> FastAPI:
    """The app."""
    options = Settings(**settings)
    registry = CollectorRegistry()
    app = FastAPI(redirect_slashes=False)
    add_error_handlers(app)
    add_routes(app)
    app.include_router(metrics_router(registry))
    add_layers(app, options, registry)
    return app


@contextlib.asynccontextmanager
async def layered(**settings: Any) -> AsyncIterator[tuple[Client, Listening]]:
    """The app on a real socket."""
    async with listen(layered_app(**settings)) as server:
        client = Client(f"http://127.0.0.1:{server.port}")
        try:
            yield client, server
        finally:
            await client.close()


class Records(logging.Handler):
    """Keeps what a logger says; a test may wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._more.set()

    async def wait_for(self, count: int) -> list[logging.LogRecord]:
        """The records once there are `count`."""
        async with asyncio.timeout(GUARD):
            while len(self.records) < count:
                self._more.clear()
                await self._more.wait()
        return self.records


@contextlib.contextmanager
def recorded(name: str) -> Iterator[Records]:
    """Record one logger from the info level on."""
    logger = logging.getLogger(name)
    records, level = Records(), logger.level
    logger.addHandler(records)
    logger.setLevel(logging.INFO)
    try:
        yield records
    finally:
        logger.removeHandler(records)
        logger.setLevel(level)
