"""The limit to divide by: a bare protocol on uvloop that writes one ready event a stream a step.

    python -m benchmarks.raw_writer PORT STEP_MS EVENTS EVENT_BYTES

Prints a line once it listens. It reads a request's head and body by length and knows nothing else of HTTP.
"""

import asyncio
import sys
from typing import cast

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP/1.1's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Writer(asyncio.Protocol):
    """A connection that is written to from its first request on."""

    def __init__(self, live: dict["Writer", int]) -> None:
        self._live = live
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Begin the stream once the request is there."""
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if mark and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            self._received = b""
            self.transport.write(_HEAD)
            self._live[self] = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Forget it."""
        self._live.pop(self, None)


async def write_forever(port: int, step: float, events: int, event_bytes: int) -> None:
    """Serve until killed; `step` in seconds, 0 floods."""
    live: dict[Writer, int] = {}
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Writer(live), "127.0.0.1", port, backlog=4096)
    print("listening", flush=True)
    event = chunk(b"data: " + b"x" * max(event_bytes - 8, 0) + b"\n\n")
    last = event + chunk(_LAST) + b"0\r\n\r\n"
    following = loop.time()
    while True:
        following = max(following + step, loop.time()) if step else 0.0
        await asyncio.sleep(max(0.0, following - loop.time()) if step else 0.0)
        for writer in list(live):
            live[writer] += 1
            if live[writer] >= events:
                writer.transport.write(last)
                del live[writer]
            else:
                writer.transport.write(event)


def main() -> None:
    """Run with the arguments of the command line."""
    port, step_ms, events, event_bytes = sys.argv[1:5]
    uvloop.run(write_forever(int(port), float(step_ms) / 1e3, int(events), int(event_bytes)))


if __name__ == "__main__":
    main()
