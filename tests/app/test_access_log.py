import logging
from typing import Any

import pytest

from app.access_log import printable_path
from tests.app.layered import layered, recorded
from tests.client import RawConnection

ACCESS = "tailrace.access"


def field(record: logging.LogRecord, name: str) -> Any:
    return vars(record)[name]


async def test_one_line_with_all_fields() -> None:
    with recorded(ACCESS) as log:
        async with layered() as (client, _):
            await client.get("/items/a%20b?secret=1", headers={"x-request-id": "mine"})
            (record,) = await log.wait_for(1)
    assert field(record, "method") == "GET"
    assert field(record, "path") == "/items/a%20b"
    assert field(record, "status") == 200
    assert field(record, "request_id") == "mine"
    assert 0 <= field(record, "duration_ms") < 30_000
    host, _, port = field(record, "client").partition(":")
    assert host == "127.0.0.1"
    assert port.isdigit()
    line = record.getMessage()
    assert line.startswith(f'127.0.0.1:{port} "GET /items/a%20b" 200 ')
    assert line.endswith("ms mine")
    assert "secret" not in line


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/fault", 500), ("GET", "/invalid", 400), ("DELETE", "/id", 405)],
)
async def test_errors_have_their_status(method: str, path: str, status: int) -> None:
    with recorded(ACCESS) as log, recorded("tailrace.error"):
        async with layered() as (client, _):
            await client.request(method, path)
            (record,) = await log.wait_for(1)
    assert field(record, "status") == status


async def test_key_and_body_are_never_logged() -> None:
    with recorded(ACCESS) as log:
        async with layered(api_key="sesame") as (client, _):
            await client.post("/parsed", {"prompt": "confidential"}, headers={"authorization": "Bearer sesame"})
            await client.post("/parsed", {"prompt": "confidential"}, headers={"authorization": "Bearer sesam"})
            records = await log.wait_for(2)
    assert [field(record, "status") for record in records] == [200, 401]
    told = "".join(str(vars(record)) + record.getMessage() for record in records)
    assert "sesam" not in told
    assert "confidential" not in told


async def test_who_leaves_in_a_stream_is_499() -> None:
    with recorded(ACCESS) as log:
        async with layered() as (_, server):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/trickle")
            await connection.read_until(b"first")
            await connection.close()
            (record,) = await log.wait_for(1)
    assert field(record, "status") == 499


async def test_who_leaves_while_the_body_is_read_is_499_and_counted_so() -> None:
    with recorded(ACCESS) as log:
        async with layered() as (client, server):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send(b"POST /size HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc")
            await connection.close()
            (record,) = await log.wait_for(1)
            metrics = (await client.get("/metrics")).body.decode()
    assert field(record, "status") == 499
    assert 'http_requests_total{handler="/size",method="POST",status="4xx"} 1.0' in metrics


async def test_a_stream_cut_by_a_fault_is_500() -> None:
    with recorded(ACCESS) as log, recorded("tailrace.error"):
        async with layered() as (_, server):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send_request("GET", "/late-fault")
            await connection.read_to_end()
            await connection.close()
            (record,) = await log.wait_for(1)
    assert field(record, "status") == 500


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"/v1/models", "/v1/models"),
        (b"/a%0d%0aINFO", "/a%0d%0aINFO"),
        (b"/a\r\nb", "/a\\x0d\\x0ab"),
        (b'/a"b c', "/a\\x22b\\x20c"),
        (b"/\xc3\xa9", "/\\xc3\\xa9"),
        (b"/" + b"x" * 5000, "/" + "x" * 255),
    ],
)
def test_paths_stay_on_one_line(raw: bytes, shown: str) -> None:
    assert printable_path({"raw_path": raw, "path": "/"}) == shown
