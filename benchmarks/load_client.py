"""A client that reads streams as fast as Python can: counts events and bytes, notes when each stream's first came.

Run as a process of its own, so that its work is not counted as the server's:
    python -m benchmarks.load_client PORT PATH BODY_FILE STREAMS
"""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import uvloop


class LoadResult(msgspec.Struct, frozen=True):
    """What a run saw. Times are milliseconds but wall_s; events leave out the end mark."""

    streams: int
    errors: int
    events: int
    bytes: int
    wall_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float


class StreamReader(asyncio.Protocol):
    """One request on one connection."""

    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self._request = request
        self._done = done
        self._tail = b""
        self.events = 0
        self.bytes = 0
        self.started = 0.0
        self.first: float | None = None
        self.complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.Transport", transport)
        self.started = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count. An event's mark may be cut by a read, so the last bytes are looked at again."""
        self.bytes += len(data)
        seen = self._tail + data
        self.events += seen.count(b"\ndata: ")
        if self.first is None and self.events:
            self.first = time.perf_counter()
        self._tail = seen[-6:]
        if b"[DONE]" in seen[-24:]:
            self.complete = True
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the run."""
        if not self._done.done():
            self._done.set_result(None)


async def run_load(port: int, path: str, body: bytes, streams: int) -> LoadResult:
    """Open all streams at once and read each to its end."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(streams)]
    readers = [StreamReader(head.encode() + body, future) for future in futures]
    began = time.perf_counter()
    # Each call of the factory hands out the next reader.
    remaining = iter(readers)
    await asyncio.gather(*(loop.create_connection(lambda: next(remaining), "127.0.0.1", port) for _ in readers))
    await asyncio.gather(*futures)
    wall = time.perf_counter() - began
    waits = sorted((reader.first - reader.started) * 1e3 for reader in readers if reader.first is not None)
    return LoadResult(
        streams=streams,
        errors=sum(not reader.complete for reader in readers),
        events=sum(max(reader.events - 1, 0) for reader in readers),
        bytes=sum(reader.bytes for reader in readers),
        wall_s=round(wall, 3),
        ttft_p50_ms=round(statistics.median(waits), 2) if waits else 0.0,
        ttft_p99_ms=round(waits[int(len(waits) * 0.99)], 2) if waits else 0.0,
    )


def main() -> None:
    """Run and print the result as JSON."""
    port, path, body_file, streams = sys.argv[1:5]
    result = uvloop.run(run_load(int(port), path, Path(body_file).read_bytes(), int(streams)))
    print(json.dumps(msgspec.to_builtins(result)))


if __name__ == "__main__":
    main()
