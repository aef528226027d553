"""One static bearer key, checked before the body is read; health, version, metrics and OPTIONS stay open."""

import hashlib
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from app.error_response import error_response
from engines.errors import InvalidApiKey

_OPEN_PATHS = frozenset({"/live", "/ready", "/ping", "/metrics", "/version"})
_OPEN_PREFIX = "/health"


class AuthLayer:
    """Refuses with 401 whoever doesn't send the key; without a key everything passes."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._digest = None if key is None else _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or self._digest is None or is_open(scope) or self._holds_key(scope):
            await self._app(scope, receive, send)
            return
        error = InvalidApiKey("Send the server's API key as 'Authorization: Bearer KEY'.")
        await error_response(error, headers={"www-authenticate": "Bearer"})(scope, receive, send)

    def _holds_key(self, scope: Scope) -> bool:
        assert self._digest is not None
        given = bearer_of(scope)
        return given is not None and hmac.compare_digest(_digest(given), self._digest)


def is_open(scope: Scope) -> bool:
    """Whether a request needs no key."""
    path: str = scope["path"]
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX) or scope["method"] == "OPTIONS"


def bearer_of(scope: Scope) -> bytes | None:
    """The bearer token of the first Authorization header. The scheme's case and blanks around the token don't count."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            return bytes(token).strip() if scheme.lower() == b"bearer" else None
    return None


def _digest(key: bytes) -> bytes:
    # Digests have one length, so that the comparison doesn't tell the key's.
    return hashlib.sha256(key).digest()
