"""Cases of what the metrics show."""

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.cases.loading import Case
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.serving import LiveServer

METHODS = ["PURGE", "MKCOL", "PROPFIND", "REPORT", "LOCK", "SEARCH"]


@covers("ME-02")
async def paths_are_no_labels(case: Case, stage: Stage) -> None:
    async with stage.serve() as live:
        await scan(live, range(1))
        await live.client.get("/metrics")
        before = series((await live.client.get("/metrics")).body.decode())
        await scan(live, range(1, 100))
        assert series((await live.client.get("/metrics")).body.decode()) == before
        assert not any(re.search(r"wp-|none-|x\.php|" + "|".join(METHODS), name) for name in before)
        assert any('handler="unmatched"' in name for name in before)


async def scan(live: LiveServer, numbers: range) -> None:
    """What a scanner does, one path after another."""
    for number in numbers:
        assert (await live.client.get(f"/wp-{number}/x.php?{number}")).status == 404
        assert (await live.client.get(f"/v1/completions/{number}/")).status == 404
        assert (await live.client.request(METHODS[number % len(METHODS)], "/v1/models")).status == 405
        assert (await live.client.get(f"/v1/models/none-{number}")).status == 404


def series(exposition: str) -> set[str]:
    """Every series: its name with its labels."""
    return {line.rpartition(" ")[0] for line in exposition.splitlines() if not line.startswith("#")}


@covers("ME-05")
async def histograms_reach_the_load(case: Case, stage: Stage) -> None:
    """Edges from fast to slow; an operator may set them."""
    reach = {
        "tailrace:time_to_first_token_seconds": (0.001, 300.0),
        "tailrace:e2e_request_latency_seconds": (0.01, 3600.0),
        "tailrace:request_time_per_output_token_seconds": (0.001, 10.0),
        "tailrace:inter_token_latency_seconds": (0.001, 10.0),
    }
    body = {"model": "m", "prompt": "x", "max_tokens": 4}
    async with stage.serve() as live:
        await live.client.post("/v1/completions", body)
        edges = edges_of((await live.client.get("/metrics")).body.decode())
        for name, (low, high) in reach.items():
            assert min(edges[name]) <= low, name
            assert max(edges[name]) >= high, name
    async with stage.serve(latency_buckets=[0.5, 700.0]) as live:
        await live.client.post("/v1/completions", body)
        edges = edges_of((await live.client.get("/metrics")).body.decode())
        assert {name: edges[name] for name in reach} == {name: [0.5, 700.0] for name in reach}


def edges_of(exposition: str) -> dict[str, list[float]]:
    """Finite bucket edges of every histogram."""
    return {
        family.name: sorted(
            {float(sample.labels["le"]) for sample in family.samples if sample.labels.get("le", "+Inf") != "+Inf"}
        )
        for family in text_string_to_metric_families(exposition)
        if family.type == "histogram"
    }
