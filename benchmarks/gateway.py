"""What a token costs: CPU of the server's processes, rate and time to first token, beside a raw writer in the same run.

    python -m benchmarks.gateway [--smoke] [--streams 64,256] [--tokens 256] [--step-ms 20] [--json FILE]

The scripted engine runs inside the server's process, so its frames are part of the server's figures. A step of
0 floods. Every row is checked for failed streams; events/token under 1 says that events were merged.
"""

import argparse
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.load_client import LoadResult

_TICKS = os.sysconf("SC_CLK_TCK")
_START_TIMEOUT = 120.0
_RUN_TIMEOUT = 300.0


class Case(msgspec.Struct, frozen=True):
    """A request that is sent by every stream."""

    name: str
    path: str
    body: dict[str, object]


class Row(msgspec.Struct, frozen=True):
    """One measurement; ratio is the CPU per token over that of the raw writer with as many bytes."""

    case: str
    streams: int
    step_ms: float
    tokens_per_second: int
    cpu_us_per_token: float
    raw_cpu_us_per_token: float
    ratio: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    events_per_token: float
    bytes_per_token: int


def cases(tokens: int) -> list[Case]:
    """Completions and chat, without logprobs and with 1 and 5 alternatives."""
    base: dict[str, object] = {"max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True}
    text = base | {"prompt": "The capital of France is"}
    chat = base | {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
    return [
        Case("completions", "/v1/completions", text),
        Case("completions, logprobs 1", "/v1/completions", text | {"logprobs": 1}),
        Case("completions, logprobs 5", "/v1/completions", text | {"logprobs": 5}),
        Case("chat", "/v1/chat/completions", chat),
        Case("chat, top_logprobs 5", "/v1/chat/completions", chat | {"logprobs": True, "top_logprobs": 5}),
    ]


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def serving(step_ms: float) -> Iterator[tuple[int, int]]:
    """Run `tailrace serve` on the scripted engine; yields port and process id."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--engine", "scripted", "--port", str(port)]
    command += ["--scripted-step-ms", str(step_ms), "--log-level", "warning", "--max-running", "4096"]
    with subprocess.Popen(command) as process:
        try:
            wait_ready(port, process)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Ask until the server is ready."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


@contextmanager
def raw_writing(step_ms: float, events: int, event_bytes: int) -> Iterator[tuple[int, int]]:
    """Run the raw writer; yields port and process id."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.raw_writer", str(port), str(step_ms), str(events), str(event_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield port, process.pid
        finally:
            process.kill()


def load(port: int, pid: int, case: Case, streams: int) -> tuple[LoadResult, float]:
    """Run the client; return what it saw and the CPU seconds that the server used meanwhile."""
    with tempfile.NamedTemporaryFile("wb") as body:
        body.write(msgspec.json.encode(case.body))
        body.flush()
        command = [sys.executable, "-m", "benchmarks.load_client", str(port), case.path, body.name, str(streams)]
        before = cpu_seconds(pid)
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_RUN_TIMEOUT)
        used = cpu_seconds(pid) - before
    return msgspec.json.decode(done.stdout, type=LoadResult), used


def measure(port: int, pid: int, case: Case, streams: int, tokens: int, step_ms: float) -> Row:
    """One row: ours, then the raw writer with events of the same size."""
    ours, cpu = load(port, pid, case, streams)
    total = streams * tokens
    if ours.errors or ours.events == 0:
        raise RuntimeError(f"{case.name}: {ours.errors} of {streams} streams failed")
    event_bytes = ours.bytes // total
    with raw_writing(step_ms, tokens, event_bytes) as (raw_port, raw_pid):
        raw, raw_cpu = load(raw_port, raw_pid, case, streams)
    if raw.errors:
        raise RuntimeError("the raw writer's streams failed")
    return Row(
        case=case.name,
        streams=streams,
        step_ms=step_ms,
        tokens_per_second=round(total / ours.wall_s),
        cpu_us_per_token=round(cpu / total * 1e6, 2),
        raw_cpu_us_per_token=round(raw_cpu / total * 1e6, 2),
        ratio=round(cpu / raw_cpu, 2) if raw_cpu else 0.0,
        ttft_p50_ms=ours.ttft_p50_ms,
        ttft_p99_ms=ours.ttft_p99_ms,
        events_per_token=round(ours.events / total, 3),
        bytes_per_token=event_bytes,
    )


def show(row: Row) -> None:
    """Print a row of the table."""
    print(
        f"{row.case:24} N={row.streams:<5} {row.tokens_per_second:>8} tok/s  {row.cpu_us_per_token:>7} us/token "
        f"(raw {row.raw_cpu_us_per_token}, x{row.ratio})  ttft {row.ttft_p50_ms}/{row.ttft_p99_ms} ms  "
        f"{row.events_per_token} events/token  {row.bytes_per_token} B/token",
        flush=True,
    )


def main() -> None:
    """Measure and print; keep the rows as JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway")
    parser.add_argument("--smoke", action="store_true", help="a few small streams, to see that it runs")
    parser.add_argument("--streams", default="64,256")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    streams, tokens, step_ms = options.streams, options.tokens, options.step_ms
    if options.smoke:
        streams, tokens, step_ms = "8", 16, 5.0
    rows: list[Row] = []
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {step_ms} ms a step")
    with serving(step_ms) as (port, pid):
        for case in cases(tokens):
            load(port, pid, case, 4)
            for count in map(int, streams.split(",")):
                rows.append(measure(port, pid, case, count, tokens, step_ms))
                show(rows[-1])
    if options.json is not None:
        options.json.write_text(json.dumps([msgspec.to_builtins(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
