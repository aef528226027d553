from app.auth import bearer_of
from tests.app.layered import layered
from tests.client import RawConnection

KEY = "clé-🔑"
BODY = {"prompt": "hi"}


RIGHT = [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER   {KEY}"]
WRONG = [
    b"Bearer wrong",
    b"Bearer \xfc",
    b"Bearer \xff\xfe\x80",
    b"Bearer",
    b"",
    KEY.encode(),
    b"Basic " + KEY.encode(),
    b"Bearer " + KEY.encode() + b"x",
    b"Bearer " + KEY.encode()[:-1],
    b"Bearer " + KEY.upper().encode(),
    b"Bearer" + KEY.encode(),
]
OPEN = ["/health", "/live", "/ready", "/ping", "/version", "/metrics"]
GUARDED = ["/id", "/openapi.json", "/docs", "/nowhere", "/", "/metricsx", "/live/x", "/LIVE", "//health"]


async def test_the_key_lets_in_whatever_the_case_of_the_scheme_and_the_blanks() -> None:
    async with layered(api_key=KEY) as (client, _):
        for given in RIGHT:
            reply = await client.post("/parsed", BODY, headers={"authorization": given.encode()})
            assert reply.status == 200, given


async def test_anything_else_is_refused_in_openai_shape() -> None:
    async with layered(api_key=KEY) as (client, _):
        for given in WRONG:
            reply = await client.post("/parsed", BODY, headers={"authorization": given})
            assert reply.status == 401, given
            assert (reply.error.type, reply.error.code) == ("authentication_error", "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
            assert "x-request-id" in reply.headers
            assert KEY not in reply.body.decode()


def test_blanks_around_the_token_are_dropped() -> None:
    assert bearer_of({"headers": [(b"authorization", b"  Bearer \t key  ")]}) == b"key"
    assert bearer_of({"headers": [(b"authorization", b"Basic key")]}) is None


async def test_no_header_is_refused() -> None:
    async with layered(api_key=KEY) as (client, _):
        assert (await client.post("/parsed", BODY)).status == 401


async def test_the_refusal_comes_before_the_body_is_read() -> None:
    async with layered(api_key=KEY) as (client, server):
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(b"POST /size HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n")
        assert (await connection.read_until(b"\r\n")).startswith(b"HTTP/1.1 401")
        await connection.close()
        assert (await client.get("/health")).status == 200


async def test_health_version_and_metrics_are_open_and_all_else_is_guarded() -> None:
    async with layered(api_key=KEY) as (client, _):
        assert {path: (await client.get(path)).status for path in OPEN} == dict.fromkeys(OPEN, 200)
        assert {path: (await client.get(path)).status for path in GUARDED} == dict.fromkeys(GUARDED, 401)


async def test_options_is_not_guarded() -> None:
    async with layered(api_key=KEY) as (client, _):
        reply = await client.request("OPTIONS", "/parsed", headers={"origin": "http://x"})
        assert reply.status == 405


async def test_without_a_key_everything_is_open() -> None:
    async with layered() as (client, _):
        assert (await client.post("/parsed", BODY, headers={"authorization": b"Bearer \xfc"})).status == 200
