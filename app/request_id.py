"""The outermost layer: every request has an id, taken from the client or made, and every answer says it.

The id is for people and logs. Engine-side ids are made elsewhere and are unique whatever a client sends here.
"""

import re
import uuid
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.exchange import Exchange

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestIdLayer:
    """Takes X-Request-Id if it is 1 to 128 characters of [A-Za-z0-9._:-], makes an id otherwise, and echoes it.

    Its tap on `send` is the only one of our layers: it returns the inner awaitable as it is, so that an event
    costs one plain call, and notes status and end in the exchange for the others.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(request_id_of(scope))
        exchange.enter(scope)
        echo = (HEADER, exchange.request_id.encode())

        def tapped(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), echo]}
            elif not message.get("more_body"):
                exchange.complete = True
            return send(message)

        await self._app(scope, receive, tapped)


def request_id_of(scope: Scope) -> str:
    """The client's own id where it is acceptable, else a new one."""
    for name, value in scope["headers"]:
        if name == HEADER and _ACCEPTABLE.fullmatch(value):
            return str(value, "ascii")
    return f"req-{uuid.uuid4().hex}"
