from fastapi import FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from app.connection import ABORT_EXTENSION
from tests.client import RawConnection
from tests.listening import listen


class Dropping(Response):
    """Starts, then drops its connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        scope["extensions"][ABORT_EXTENSION]()
        while (await receive())["type"] != "http.disconnect":
            pass


async def test_an_answer_can_drop_its_connection_whatever_is_unsent() -> None:
    app = FastAPI()

    @app.get("/drop")
    async def drop(request: Request) -> Response:
        return Dropping()

    async with listen(app) as server:
        for _ in range(2):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/drop")
            try:
                answer = await connection.read_to_end()
            except ConnectionResetError:
                answer = b""
            assert not answer.endswith(b"0\r\n\r\n")
            await connection.close()
        assert not server.server_state.connections
