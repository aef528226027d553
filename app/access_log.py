"""One line for each request, on a logger of its own. Never the key, the query or a body."""

import logging

from starlette.types import ASGIApp, Receive, Scope, Send

from app.exchange import Exchange, exchange_of

logger = logging.getLogger("tailrace.access")

_LONGEST_PATH = 256


class AccessLogLayer:
    """Logs method, path, status, duration, request id and client at the end of each exchange."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if logger.isEnabledFor(logging.INFO):
                log_access(scope, exchange_of(scope))


def log_access(scope: Scope, exchange: Exchange) -> None:
    """Write the line; the fields also go along one by one for JSON logs."""
    client = scope.get("client")
    fields = {
        "client": f"{client[0]}:{client[1]}" if client else "-",
        "method": scope["method"],
        "path": printable_path(scope),
        "status": exchange.outcome,
        "duration_ms": round(exchange.seconds * 1e3, 1),
        "request_id": exchange.request_id,
    }
    logger.info('%(client)s "%(method)s %(path)s" %(status)d %(duration_ms).1fms %(request_id)s', fields, extra=fields)


def printable_path(scope: Scope) -> str:
    """The path as it was sent, percent-encoded, cut, and safe on one line of any log."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    text = raw[:_LONGEST_PATH].decode("ascii", "backslashreplace")
    return "".join(char if " " < char <= "~" and char != '"' else f"\\x{ord(char):02x}" for char in text)
