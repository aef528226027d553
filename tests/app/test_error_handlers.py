import pytest

from app.error_handlers import error_of_faults
from tests.app.layered import layered


async def test_our_errors() -> None:
    async with layered() as (client, _):
        reply = await client.get("/invalid")
        assert reply.status == 400
        assert reply.error.message == "no good"
        assert (reply.error.param, reply.error.code) == ("temperature", "invalid_value")
        assert "retry-after" not in reply.headers


async def test_retry_after_is_whole_seconds_rounded_up() -> None:
    async with layered() as (client, _):
        reply = await client.get("/busy")
        assert (reply.status, reply.error.type, reply.error.code) == (503, "server_error", "overloaded")
        assert reply.headers["retry-after"] == "2"


async def test_unknown_routes() -> None:
    async with layered() as (client, _):
        for path in ("/nowhere", "/items", "/items/a/b", "/id/", "/%00", "/a%0d%0ab", "/" + "x" * 8000):
            reply = await client.get(path)
            assert reply.status == 404, path
            assert (reply.error.type, reply.error.code) == ("not_found_error", "not_found")
            assert len(reply.body) < 300


async def test_unknown_methods_name_the_known_ones() -> None:
    async with layered() as (client, _):
        reply = await client.request("DELETE", "/id")
        assert (reply.status, reply.error.code) == (405, "method_not_allowed")
        assert reply.headers["allow"] == "GET"


BAD_BODIES = [
    (b"{}", "prompt"),
    (b'{"prompt":1}', "prompt"),
    (b'{"prompt":"x","count":"many"}', "count"),
    (b'{"count":"many"}', "prompt"),
    (b"[]", None),
    (b'"x"', None),
    (b"{", None),
    (b'{"prompt": NaN', None),
    (b"\xff\xfe", None),
]


@pytest.mark.parametrize(("body", "param"), BAD_BODIES)
async def test_bad_bodies_are_400_and_name_the_field(body: bytes, param: str | None) -> None:
    async with layered() as (client, _):
        reply = await client.post("/parsed", raw=body)
        assert reply.status == 400
        assert reply.error.type == "invalid_request_error"
        assert reply.error.message
        if param is not None:
            assert reply.error.param == param
            assert param in reply.error.message
        assert (await client.post("/parsed", {"prompt": "next"})).status == 200


async def test_what_was_sent_is_not_repeated() -> None:
    async with layered() as (client, _):
        reply = await client.post("/parsed", {"prompt": {"<script>": "\u2028"}, "count": "<b>confidential</b>"})
        assert reply.status == 400
        assert "script" not in reply.error.message
        assert "confidential" not in reply.body.decode()


def fault(*place: str | int, kind: str = "missing") -> dict[str, object]:
    return {"type": kind, "loc": place, "msg": "Field required"}


def test_faults_are_listed_the_first_is_the_param() -> None:
    error = error_of_faults([fault("body", "messages", 0, "role"), fault("query", "n")])
    assert error.message == "messages.0.role: Field required; n: Field required"
    assert error.param == "messages.0.role"


def test_many_faults_are_cut() -> None:
    error = error_of_faults([fault("body", f"f{i}") for i in range(1000)])
    assert error.message.endswith("f9: Field required; and 990 more")
