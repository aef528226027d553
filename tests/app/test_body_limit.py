from app.body_limit import BodyLimitLayer, content_length_of
from tests.app.layered import layered
from tests.client import RawConnection
from tests.listening import Listening

LIMIT = 1000


async def chunked(server: Listening, chunks: list[bytes], path: str = "/size") -> bytes:
    connection = await RawConnection.open("127.0.0.1", server.port)
    connection.send(f"POST {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n".encode())
    connection.send(b"Content-Type: application/json\r\n\r\n")
    connection.send(b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n")
    answer = await connection.read_to_end()
    await connection.close()
    return answer


async def test_a_body_up_to_the_limit_passes() -> None:
    async with layered(max_body=LIMIT) as (client, server):
        assert (await client.post("/size", raw=b"x" * LIMIT)).json == {"size": LIMIT}
        assert (await client.post("/size", raw=b"")).json == {"size": 0}
        assert b'{"size":1000}' in await chunked(server, [b"x" * 400, b"x" * 600])


async def test_a_longer_body_is_413_in_openai_shape_and_the_next_request_works() -> None:
    async with layered(max_body=LIMIT) as (client, _):
        reply = await client.post("/size", raw=b"x" * (LIMIT + 1))
        assert reply.status == 413
        assert (reply.error.type, reply.error.code) == ("invalid_request_error", "payload_too_large")
        assert str(LIMIT) in reply.error.message
        assert (await client.post("/size", raw=b"x")).json == {"size": 1}


async def test_content_length_over_the_limit_is_refused_before_the_body_comes() -> None:
    async with layered(max_body=LIMIT) as (_, server):
        for length in (LIMIT + 1, 2**62):
            connection = await RawConnection.open("127.0.0.1", server.port)
            connection.send(f"POST /size HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n".encode())
            assert (await connection.read_until(b"\r\n")).startswith(b"HTTP/1.1 413")
            await connection.close()


async def test_a_chunked_body_over_the_limit_is_413_whoever_reads_it() -> None:
    async with layered(max_body=LIMIT) as (_, server):
        for path in ("/size", "/parsed"):
            answer = await chunked(server, [b"x" * 600, b"x" * 401], path)
            assert answer.startswith(b"HTTP/1.1 413"), path
            assert b'"code":"payload_too_large"' in answer


async def test_a_chunked_body_without_end_is_refused_while_it_comes() -> None:
    async with layered(max_body=LIMIT) as (_, server):
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(b"POST /size HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"%x\r\n%b\r\n" % (LIMIT + 1, b"x" * (LIMIT + 1)))
        assert (await connection.read_until(b"\r\n")).startswith(b"HTTP/1.1 413")
        await connection.close()


async def test_receive_and_send_pass_untouched_with_content_length_or_without_a_body() -> None:
    seen = []

    async def app(scope: object, receive: object, send: object) -> None:
        seen.append((receive, send))

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(message)

    for headers in ([(b"content-length", b"5")], []):
        await BodyLimitLayer(app, LIMIT)({"type": "http", "headers": headers}, receive, send)
    assert seen == [(receive, send)] * 2


def test_content_length() -> None:
    def length(*headers: tuple[bytes, bytes]) -> int | None:
        return content_length_of({"headers": list(headers)})

    assert length() == 0
    assert length((b"content-length", b"12")) == 12
    assert length((b"transfer-encoding", b"chunked")) is None
    assert length((b"content-length", b"1"), (b"transfer-encoding", b"chunked")) is None
    huge = length((b"content-length", b"9" * 10_000))
    assert huge is not None
    assert huge > 2**62
