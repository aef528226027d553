import re

from tests.app.layered import layered
from tests.client import RawConnection

OWN = re.compile(r"req-[0-9a-f]{32}")


KEPT = ["a", "same-id", "A.b_c:9-", "x" * 128]
REPLACED = [b"", b"x" * 129, b"x" * 60_000, b"a b", b"a\tb", b"a;b", b"\xc3\xa9", b"\xff", b'a"b', b"a,b", b"a/b"]


async def test_an_acceptable_id_is_kept_and_echoed() -> None:
    async with layered() as (client, _):
        for given in KEPT:
            reply = await client.get("/id", headers={"x-request-id": given})
            assert reply.json == {"id": given}
            assert reply.headers.get_list("x-request-id") == [given]


async def test_any_other_is_replaced() -> None:
    async with layered() as (client, _):
        for given in REPLACED:
            reply = await client.get("/id", headers={"x-request-id": given})
            (echoed,) = reply.headers.get_list("x-request-id")
            assert OWN.fullmatch(echoed), given[:20]
            assert reply.json == {"id": echoed}


async def test_ids_that_are_made_are_unique() -> None:
    async with layered() as (client, _):
        made = {(await client.get("/id")).headers["x-request-id"] for _ in range(5)}
        assert len(made) == 5
        assert all(OWN.fullmatch(each) for each in made)


FAULTY = [
    ("GET", "/nowhere", 404),
    ("PUT", "/id", 405),
    ("GET", "/invalid", 400),
    ("GET", "/fault", 500),
    ("GET", "/busy", 503),
    ("POST", "/parsed", 400),
]


async def test_errors_say_the_id_too() -> None:
    async with layered() as (client, _):
        for method, path, status in FAULTY:
            reply = await client.request(method, path, headers={"x-request-id": "mine"})
            assert reply.status == status
            assert reply.headers.get_list("x-request-id") == ["mine"]


async def test_refusals_of_the_layers_say_the_id_too() -> None:
    async with layered(api_key="k", max_body=10) as (client, _):
        assert (await client.get("/id", headers={"x-request-id": "mine"})).headers["x-request-id"] == "mine"
        reply = await client.post("/size", raw=b"x" * 11, headers={"x-request-id": "mine", "authorization": "Bearer k"})
        assert (reply.status, reply.headers["x-request-id"]) == (413, "mine")


async def test_duplicates_both_work() -> None:
    async with layered() as (client, server):
        other = await RawConnection.open("127.0.0.1", server.port)
        other.send_request("GET", "/trickle", headers={"X-Request-Id": "same"})
        assert b"x-request-id: same" in await other.read_until(b"first")
        assert (await client.get("/id", headers={"x-request-id": "same"})).json == {"id": "same"}
        await other.close()


async def test_line_breaks_never_reach_the_answer() -> None:
    async with layered() as (_, server):
        connection = await RawConnection.open("127.0.0.1", server.port)
        connection.send(b"GET /id HTTP/1.1\r\nHost: t\r\nX-Request-Id: a\r\n x: b\r\nConnection: close\r\n\r\n")
        head = (await connection.read_to_end()).partition(b"\r\n\r\n")[0]
        assert not [line for line in head.split(b"\r\n") if line.startswith((b" ", b"x: b"))]
        await connection.close()
