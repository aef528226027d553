from prometheus_client.parser import text_string_to_metric_families

from tests.app.layered import layered


async def test_plain_text_by_default() -> None:
    async with layered() as (client, _):
        await client.get("/id")
        reply = await client.get("/metrics")
        assert reply.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]
        assert "http_requests" in {family.name for family in text_string_to_metric_families(reply.body.decode())}


async def test_openmetrics_where_it_is_accepted() -> None:
    async with layered() as (client, _):
        await client.get("/id")
        reply = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert b'http_requests_total{handler="/id"' in reply.body
        assert reply.body.endswith(b"# EOF\n")


async def test_a_strange_accept_header_is_no_fault() -> None:
    async with layered() as (client, _):
        for accept in ("", ",,;", "application/openmetrics-text;version=0.0.1", "*/*;q=x", "text/plain; version=1.0.0"):
            assert (await client.get("/metrics", headers={"accept": accept})).status == 200, accept
