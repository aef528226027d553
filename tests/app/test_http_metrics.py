import random
import re
from typing import Any

from fastapi import FastAPI
from starlette.types import Message

from app.http_metrics import OTHER_METHOD, UNMATCHED
from tests.app.layered import layered, layered_app, recorded
from tests.client import Client, RawConnection

METHODS = ["GET", "POST", "PUT", "DELETE", "PROPFIND", "MKCOL", "PURGE", "M-SEARCH", "BREW", "\u212b"]


async def call(app: FastAPI, method: str, path: str, answer: bytearray | None = None) -> int:
    """One request straight into the app, as a server would make it."""
    status = 0

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        if answer is not None:
            answer.extend(message.get("body", b""))

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    await app(scope, receive, send)
    return status


async def series_of(app: FastAPI) -> set[str]:
    answer = bytearray()
    assert await call(app, "GET", "/metrics", answer) == 200
    return {line.rpartition(" ")[0] for line in answer.decode().splitlines() if not line.startswith("#")}


async def count_of(client: Client, **labels: str) -> float:
    text = (await client.get("/metrics")).body.decode()
    inside = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    found = re.search(rf"^http_requests_total{{{re.escape(inside)}}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_random_paths_and_methods_add_no_series() -> None:
    """ME-02."""
    app = layered_app()
    dice = random.Random(1)

    async def scan(paths: int) -> None:
        for _ in range(paths):
            path = f"/{dice.randbytes(dice.randrange(1, 20)).hex()}{dice.choice(['', '/', '/items/x', '.php', '/id'])}"
            assert await call(app, dice.choice(METHODS), path) == 404

    await call(app, "GET", "/metrics")
    await scan(100)
    before = await series_of(app)
    await scan(20_000)
    assert await series_of(app) == before
    handlers = set(re.findall(r'handler="([^"]*)"', "\n".join(before)))
    assert handlers == {UNMATCHED, "/metrics"}
    methods = set(re.findall(r'method="([^"]*)"', "\n".join(before)))
    assert methods == {"GET", "POST", "PUT", "DELETE", OTHER_METHOD}


async def test_the_label_is_the_template_of_the_route() -> None:
    app = layered_app()
    for name in range(100):
        assert await call(app, "GET", f"/items/{name}") == 200
    handlers = set(re.findall(r'handler="([^"]*)"', "\n".join(await series_of(app))))
    assert "/items/{name}" in handlers
    assert not [handler for handler in handlers if re.search(r"/items/\d", handler)]


async def test_statuses_are_counted_by_class_inside_all_layers() -> None:
    with recorded("tailrace.error"):
        async with layered(api_key="k", max_body=10) as (client, _):
            key = {"authorization": "Bearer k"}
            await client.get("/id")
            await client.get("/id", headers=key)
            await client.get("/fault", headers=key)
            await client.post("/size", raw=b"x" * 11, headers=key)
            assert await count_of(client, handler="/id", method="GET", status="4xx") == 1
            assert await count_of(client, handler="/id", method="GET", status="2xx") == 1
            assert await count_of(client, handler="/fault", method="GET", status="5xx") == 1
            assert await count_of(client, handler="/size", method="POST", status="4xx") == 1


async def test_durations_run_to_the_last_byte_and_to_the_start() -> None:
    with recorded("tailrace.access") as log:
        async with layered() as (client, server):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/trickle")
            await connection.read_until(b"first")
            for _ in range(5):
                await client.get("/id")
            await connection.close()
            await log.wait_for(6)
            text = (await client.get("/metrics")).body.decode()

    def total(name: str) -> float:
        found = re.search(rf'^{name}_sum{{handler="/trickle",method="GET"}} (\S+)$', text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    assert 0 < total("http_response_start_seconds") < total("http_request_duration_seconds")


async def test_edges_reach_from_milliseconds_to_an_hour() -> None:
    """ME-05."""
    app = layered_app()
    await call(app, "GET", "/id")
    series = "\n".join(await series_of(app))
    for name in ("http_request_duration_highr_seconds", "http_request_duration_seconds", "http_response_start_seconds"):
        edges = [float(edge) for edge in re.findall(rf'^{name}_bucket{{.*le="([0-9.]+)"', series, re.MULTILINE)]
        assert min(edges) <= 0.01, name
        assert max(edges) >= 3600, name


async def test_the_operator_may_set_the_edges() -> None:
    app = layered_app(latency_buckets=[0.5, 2.0])
    await call(app, "GET", "/id")
    edges = set(re.findall(r'le="([^"]*)"', "\n".join(await series_of(app))))
    assert edges == {"0.5", "2.0", "+Inf"}
