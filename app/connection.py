"""A client's connection, as uvicorn keeps it, with a way for an answer to drop it.

ASGI can only end an answer in order, and closing then waits for what is still unsent. A reader that takes nothing any
more would keep its socket and buffers for as long as it likes; dropping frees both at once.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ABORT_EXTENSION = "tailrace.abort"
"""Key in the scope's extensions of a call without arguments that drops the connection."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol; each request's scope can abort the transport."""

    def on_message_begin(self) -> None:
        """Start a request's scope."""
        super().on_message_begin()
        extensions: Any = {ABORT_EXTENSION: self.transport.abort}
        self.scope["extensions"] = extensions
