"""An HTTP client for tests that reads everything strictly, and raw connections for what no decent client would do."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import httpx2
import msgspec

from tests.sse import BrokenStream, Event, EventReader, strict_json

GUARD = 30.0
"""Seconds after which a wait is a fault; nothing is expected to take anywhere near as long."""


class ErrorBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's error object, all four keys there."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a refusal, and the data of an error event."""

    error: ErrorBody


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: httpx2.Headers
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read strictly."""
        return strict_json(self.body)

    @property
    def error(self) -> ErrorBody:
        """The error of a refusal; fails unless the answer is one, in OpenAI's shape."""
        assert self.status >= 400, self
        assert self.headers["content-type"].startswith("application/json")
        return msgspec.convert(self.json, ErrorAnswer).error


class EventStream:
    """An answer that comes in events; iterate, or take them one by one. Its end is checked like the rest."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._bytes = response.aiter_raw()
        self._reader = EventReader()
        self._waiting: list[Event] = []

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status_code

    @property
    def headers(self) -> httpx2.Headers:
        """Headers of the answer."""
        return self._response.headers

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            async with asyncio.timeout(GUARD):
                try:
                    piece = await anext(self._bytes)
                except StopAsyncIteration:
                    self._reader.close()
                    raise
            self._waiting += self._reader.feed(piece)
        return self._waiting.pop(0)

    async def next(self) -> Any:
        """JSON of the next event that is no comment. BrokenStream at the end."""
        async for event in self:
            if event.data is not None and not event.done:
                return event.json
        raise BrokenStream("no further event")

    async def rest(self) -> list[Any]:
        """JSON of all further events but comments and the end mark."""
        return [event.json async for event in self if event.data is not None and not event.done]


class Client:
    """Talks to one server. `headers` go with every request."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=GUARD, limits=limits, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        raw: bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Reply:
        """Send a request, with a JSON body or raw bytes, and read the whole answer."""
        async with self._open(method, path, body, raw, headers) as response:
            return Reply(response.status_code, response.headers, await response.aread())

    async def get(self, path: str, *, headers: Mapping[str, str | bytes] | None = None) -> Reply:
        """GET."""
        return await self.request("GET", path, headers=headers)

    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Reply:
        """POST."""
        return await self.request("POST", path, body=body, raw=raw, headers=headers)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, body: Any, *, headers: Mapping[str, str | bytes] | None = None
    ) -> AsyncIterator[EventStream]:
        """POST with `stream` on; yields the events as they come. Leaving early closes the connection."""
        async with self._open("POST", path, body | {"stream": True}, None, headers) as response:
            if response.status_code != 200:
                raise AssertionError(f"{response.status_code}: {await response.aread()!r}")
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            yield EventStream(response)

    async def events(self, path: str, body: Any, *, headers: Mapping[str, str | bytes] | None = None) -> list[Any]:
        """POST with `stream` on; the JSON of all events but comments and the end mark."""
        async with self.stream(path, body, headers=headers) as stream:
            return await stream.rest()

    def _open(
        self,
        method: str,
        path: str,
        body: Any,
        raw: bytes | None,
        headers: Mapping[str, str | bytes] | None,
    ) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        content = raw if raw is not None else msgspec.json.encode(body) if body is not None else None
        typed = {"content-type": "application/json"} if content is not None else {}
        encoded = [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in ({**typed, **(headers or {})}).items()
        ]
        return self._http.stream(method, path, content=content, headers=encoded)


class RawConnection:
    """A bare connection: sends what no client would, leaves when it likes, reads when it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, *, receive_buffer: int | None = None) -> Self:
        """Connect; a small `receive_buffer` (bytes) makes a reader that is slow to the sender at once."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
        limit = receive_buffer or 2**16
        return cls(*await asyncio.open_connection(sock=sock, limit=limit))

    def send(self, data: bytes) -> None:
        """Queue bytes to be sent."""
        self._writer.write(data)

    def send_request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Queue a well-formed request."""
        content = b"" if body is None else msgspec.json.encode(body)
        lines = {"Host": "test", "Content-Type": "application/json", "Content-Length": str(len(content))}
        head = "".join(f"{name}: {value}\r\n" for name, value in (lines | dict(headers or {})).items())
        self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)

    async def read_until(self, mark: bytes) -> bytes:
        """Read up to and with a mark. IncompleteReadError if the server closes before."""
        async with asyncio.timeout(GUARD):
            return await self.reader.readuntil(mark)

    async def read_to_end(self) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(GUARD):
            return await self.reader.read()

    def stop_reading(self) -> None:
        """Take no more bytes from the kernel."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again, as fast as they come."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.resume_reading()

    async def close(self) -> None:
        """Leave politely."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def reset(self) -> None:
        """Leave as a crashed client does: the peer sees a reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
