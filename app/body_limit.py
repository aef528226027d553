"""A limit on request bodies that holds while they are read, so that none is gathered in memory over it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.error_response import error_response
from engines.errors import PayloadTooLarge

_MOST_DIGITS = 20  # beyond every limit, and int() refuses thousands of them


class BodyLimitLayer:
    """Answers 413 at once where Content-Length exceeds the limit, and as soon as a chunked body does.

    With Content-Length the server itself holds a body to it, and `receive` passes untouched. A chunked body is
    counted: past the limit `receive` raises PayloadTooLarge into the route.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = content_length_of(scope)
        if length is None:
            await self._app(scope, self._counted(receive), send)
        elif length <= self._limit:
            await self._app(scope, receive, send)
        else:
            await error_response(self._error())(scope, receive, send)

    def _counted(self, receive: Receive) -> Receive:
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._limit:
                raise self._error()
            return message

        return counted

    def _error(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The body is larger than the server's limit of {self._limit} bytes.")


def content_length_of(scope: Scope) -> int | None:
    """The body's length in bytes as announced, 0 without a body; None where only its end will tell."""
    announced = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            announced = int(value[:_MOST_DIGITS]) if value.isdigit() else 0
    return announced
