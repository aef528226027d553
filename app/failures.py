"""A fault of ours, answered inside the other layers so that the answer has its id, log line and count."""

import logging

from starlette.types import ASGIApp, Receive, Scope, Send

from app.error_response import error_response
from app.exchange import exchange_of
from engines.errors import InternalFault

logger = logging.getLogger("tailrace.error")


class FailureLayer:
    """Answers 500 without details where an exception escapes the app, and logs it once with the request's id.

    Where the answer has begun, it is cut: the server closes the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        try:
            await self._app(scope, receive, send)
        except Exception:
            if scope["type"] != "http":
                raise
            exchange = exchange_of(scope)
            exchange.failed = True
            logger.exception("Unexpected failure of a request", extra={"request_id": exchange.request_id})
            if not exchange.status:
                await error_response(InternalFault("The server failed at this request."))(scope, receive, send)
