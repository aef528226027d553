"""`tailrace serve` as a process of its own, as it is started at a prompt: its log, its engine's process, its end.

with serve_process("--engine", "scripted") as server:
    async with server.client() as client:
        ...
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from app.metrics_table import NAMESPACE
from app.settings import ENV_PREFIX
from tests.client import GUARD, Client, RawConnection

ROOT = Path(__file__).parent.parent
START_GUARD = 120.0
"""Seconds that a start may take: the model is converted already, the machine may be busy."""


class ServeProcess:
    """A server that runs. A thread reads its log, so that it never waits for the test to do so."""

    def __init__(self, process: "subprocess.Popen[str]", headers: dict[str, str]) -> None:
        self._process = process
        self._headers = headers
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="log of tailrace serve")
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def log(self) -> str:
        """What it has logged so far."""
        with self._more:
            return "".join(self._lines)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the gateway's process."""
        return self._process.pid

    @property
    def worker(self) -> psutil.Process:
        """The process of its embedded engine."""
        (worker,) = psutil.Process(self.pid).children()
        return worker

    @property
    def descriptors(self) -> int:
        """Files and sockets that the gateway's process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def memory(self) -> int:
        """Resident bytes of the gateway's process."""
        resident: int = psutil.Process(self.pid).memory_info().rss
        return resident

    @property
    def peak_memory(self) -> int:
        """The most resident bytes that the gateway's process had since `forget_peak`, or its start."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(kibibytes) * 1024

    def forget_peak(self) -> None:
        """Let `peak_memory` begin at what is resident now (see proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def find_in_log(self, pattern: str, guard: float = GUARD) -> re.Match[str]:
        """Wait until the log holds a match. Blocks."""
        compiled, found = re.compile(pattern), None

        def there() -> bool:
            nonlocal found
            found = compiled.search("".join(self._lines))
            return found is not None or self._ended

        with self._more:
            self._more.wait_for(there, guard)
        assert found is not None, f"{pattern!r} was not logged: {self.log}"
        return found

    def wait_until_up(self) -> None:
        """Wait until it listens. Blocks."""
        self.port = int(self.find_in_log(r"running on http://127\.0\.0\.1:(\d+)", START_GUARD)[1])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the gateway's process."""
        self._process.send_signal(number)

    async def exit(self) -> int:
        """Wait for its end; the exit code."""
        return await asyncio.to_thread(self._process.wait, GUARD)

    def close(self) -> None:
        """End it if it has not ended. Fails if a process that it started outlives it."""
        children = [] if self._process.poll() is not None else psutil.Process(self.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(GUARD)
        finally:
            self._process.kill()
            self._reader.join(GUARD)
        _, alive = psutil.wait_procs(children, GUARD)
        assert not alive, f"left behind: {alive}"

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client with connections and, where the server wants it, the key of its own."""
        client = Client(self.url, self._headers)
        try:
            yield client
        finally:
            await client.close()

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[RawConnection]:
        """A raw connection."""
        connection = await RawConnection.open("127.0.0.1", self.port)
        try:
            yield connection
        finally:
            await connection.close()


@contextlib.contextmanager
def serve_process(*flags: str, api_key: str | None = None) -> Iterator[ServeProcess]:
    """Start `tailrace serve` on a free port; yields once it listens. Nothing of it is left at the end."""
    key = [] if api_key is None else ["--api-key", api_key]
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0", *flags, *key],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        server = ServeProcess(process, {} if api_key is None else {"Authorization": f"Bearer {api_key}"})
        try:
            server.wait_until_up()
            yield server
        finally:
            server.close()


async def metric(client: Client, name: str, **labels: str) -> float:
    """The sum of one of our metrics' series that have the labels; `name` as exposed, without the namespace."""
    exposition = (await client.get("/metrics")).body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == NAMESPACE + name and labels.items() <= sample.labels.items()
    )


async def until_engine_is_empty(client: Client) -> None:
    """Wait until the engine neither works on a request nor has one in its queue."""
    async with asyncio.timeout(GUARD):
        while await metric(client, "num_requests_running") or await metric(client, "num_requests_waiting"):
            pass
