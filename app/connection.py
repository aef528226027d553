"""A client's connection, as uvicorn keeps it, with the bounds that uvicorn lacks.

ASGI can only end an answer in order, and closing then waits for what is still unsent. A reader that takes nothing any
more would keep its socket and buffers for as long as it likes; dropping frees both at once.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engines.errors import InvalidValue, PayloadTooLarge, TailraceError
from processors.dialects.openai_errors import error_body

ABORT_EXTENSION = "tailrace.abort"
"""Key in the scope's extensions of a call without arguments that drops the connection."""

LARGEST_HEAD = 65536
"""Bytes that may come before a request's head is whole, and between two pieces of its body."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol; each request's scope can abort the transport.

    What is no HTTP, or has a head over LARGEST_HEAD, is refused in the shape of all errors. A connection that brings
    no whole head for timeout_keep_alive seconds is closed, and one that takes no byte of an answer for send_timeout
    seconds is dropped.
    """

    def __init__(self, *args: Any, send_timeout: float = 30.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._send_timeout = send_timeout
        self._overhead = 0
        self._answered: RequestResponseCycle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request as long as for a further one."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is answered; uvicorn tells only the one that came last."""
        self._unwatch_reader()
        self._unset_keepalive_if_required()
        if self._answering:
            assert self._answered is not None
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse. The time for a head runs on until the head is whole."""
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        cycle = self.cycle
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > LARGEST_HEAD and not self.transport.is_closing():
            error = PayloadTooLarge(f"The headers are larger than the server's limit of {LARGEST_HEAD} bytes.")
            self._refuse(b"431 Request Header Fields Too Large", error)
        if self.cycle is cycle and not self.transport.is_closing():
            self.timeout_keep_alive_task = timer
        elif timer is not None:
            timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(b"400 Bad Request", InvalidValue(msg))

    def _refuse(self, status: bytes, error: TailraceError) -> None:
        """Write an answer, unless that would be amid another, and close."""
        if not self._answering:
            body = error_body(error)
            head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(body)) + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """Start a request's scope."""
        super().on_message_begin()
        extensions: Any = {ABORT_EXTENSION: self.transport.abort}
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Start the request, or queue it."""
        self._overhead = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._overhead = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        if not self.flow.write_paused:
            self._unwatch_reader()
        super()._start_asgi_task(cycle, app)

    @property
    def _answering(self) -> bool:
        return self._answered is not None and not self._answered.response_complete

    def on_response_complete(self) -> None:
        """Go on to the next request; what is unsent of this one's answer must still be taken."""
        if self._stall_timer is None:
            self._watch_reader()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Hold the answer back: too much of it is unsent."""
        super().pause_writing()
        self._unwatch_reader()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Let the answer go on."""
        super().resume_writing()
        if self._answering:
            self._unwatch_reader()

    def _watch_reader(self) -> None:
        """Look again in send_timeout seconds, if there is anything to take."""
        self._unsent = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self._send_timeout, self._drop_stalled) if self._unsent else None

    def _unwatch_reader(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _drop_stalled(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_reader()
        else:
            self.transport.abort()
