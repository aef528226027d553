"""A small app under our server in a process of its own: python -m tests.app.draining_app START [FLAGS of serve].

START is how it starts: `up`, `never` (until it is cancelled) or `fails`. Its lifespan says on standard output what
happens to it. GET /stream lives until POST /finish, or ends with an error event when it is aborted; /stuck ignores
both. GET /new is work that a draining server refuses.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.error_handlers import add_error_handlers
from app.logs import configure_logging
from app.server import make_server
from app.settings import Settings
from engines.errors import Draining, EngineUnavailable, TailraceError


class SmallGateway:
    """Counts live streams and ends them."""

    def __init__(self) -> None:
        self.draining = False
        self.live: set[asyncio.Future[TailraceError | None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        return len(self.live)

    async def stay(self) -> TailraceError | None:
        """Live until all are ended."""
        end: asyncio.Future[TailraceError | None] = asyncio.get_running_loop().create_future()
        self.live.add(end)
        self._idle.clear()
        try:
            return await end
        finally:
            self.live.discard(end)
            if not self.live:
                self._idle.set()

    def begin_drain(self) -> None:
        self.draining = True

    async def idle(self) -> None:
        await self._idle.wait()

    def finish_all(self) -> None:
        for end in self.live:
            end.set_result(None)

    def abort_all(self, error: TailraceError) -> None:
        for end in self.live:
            end.set_result(error)


@dataclass
class SmallService:
    """What the server looks for in the lifespan's state."""

    gateway: SmallGateway


class Stream(Response):
    """Events of one life in the gateway."""

    def __init__(self, gateway: SmallGateway, *, stuck: bool = False) -> None:
        super().__init__()
        self._gateway = gateway
        self._stuck = stuck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
        error = await self._gateway.stay()
        if self._stuck:
            await asyncio.Event().wait()
        last = b"finished\n" if error is None else error.code.encode() + b"\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})


def make_app(start: str) -> FastAPI:
    """The app."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, SmallService]]:
        say("starting")
        try:
            if start == "never":
                await asyncio.Event().wait()
            if start == "fails":
                raise EngineUnavailable("no engine here")
            yield {"service": SmallService(SmallGateway())}
        finally:
            say("closed")

    app = FastAPI(lifespan=lifespan)
    add_error_handlers(app)

    @app.get("/stream")
    async def stream(request: Request) -> Response:
        return Stream(request.state.service.gateway)

    @app.get("/stuck")
    async def stuck(request: Request) -> Response:
        return Stream(request.state.service.gateway, stuck=True)

    @app.get("/pings")
    async def pings(request: Request) -> Response:
        """A stream of sse-starlette as it comes, which pings more often than the library looks for a shutdown."""

        async def events() -> AsyncIterator[bytes]:
            yield b": begun\n"
            await request.state.service.gateway.stay()
            yield b": finished\n"

        return EventSourceResponse(events(), ping=0.4, sep="\n")

    @app.post("/finish")
    async def finish(request: Request) -> None:
        request.state.service.gateway.finish_all()

    @app.get("/new")
    async def new(request: Request) -> str:
        if request.state.service.gateway.draining:
            raise Draining("not now", retry_after=1)
        return type(asyncio.get_running_loop()).__module__

    return app


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    settings = Settings.from_command_line(["--port", "0", *sys.argv[2:]])
    configure_logging(settings.log_format, settings.log_level)
    make_server(make_app(sys.argv[1]), settings).run()
