"""The embedded engine's process as its parent sees it: started, watched, stopped."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from pathlib import Path

import msgspec

import engines
from engines.local.options import LocalEngineOptions

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
KEPT_LINES = 50
REASON_LINES = 3


class WorkerProcess:
    """One process, in a session of its own: a Ctrl-C meant for the gateway doesn't reach it.

    Its standard input is the leash: it ends when that is closed, by `stop` or by our death.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._exit = asyncio.create_task(self._follow())

    @classmethod
    async def start(cls, options: LocalEngineOptions, address: str) -> "WorkerProcess":
        """Start a worker that binds `address`."""
        # OpenMP's threads would spin at their barriers: beside other work on the same cores a step then took thirty
        # times as long as with threads that sleep.
        waiting = {"OMP_WAIT_POLICY": "PASSIVE"}
        root = str(Path(engines.__file__).parents[1])
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "engines.local.worker", "--owned", "--address", address),
            *("--options", msgspec.json.encode(options).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**waiting, **os.environ, "PYTHONPATH": path},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def wait(self) -> str:
        """Wait for its end and say how it came, with the last lines that it wrote."""
        return await asyncio.shield(self._exit)

    async def stop(self) -> None:
        """Ask it to end, wait a bounded time, kill it. It is gone and reaped on return."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            logger.warning("the engine's process %d did not end and is killed", self.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self.wait()

    async def _follow(self) -> str:
        """Read what it writes on standard error until it ends."""
        stream = self._process.stderr
        assert stream is not None
        rest = b""
        while data := await stream.read(65536):
            *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
            self._keep(lines)
        self._keep([rest])
        return self._reason(await self._process.wait())

    def _keep(self, lines: list[bytes]) -> None:
        for line in lines:
            if text := line.decode(errors="replace").rstrip():
                self._lines.append(text)
                logger.warning("engine process: %s", text)

    def _reason(self, code: int) -> str:
        end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = [line for line in self._lines if not line.startswith((" ", "Traceback"))][-REASON_LINES:]
        return f"the engine's process ended ({end})" + "".join(f"; {line}" for line in said)
