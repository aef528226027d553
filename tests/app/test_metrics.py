import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import Metrics
from app.metrics_table import LABELS, METRICS, Kind
from processors.meter import FinishedRequest, Meter

LABELLED = {"model_name": "m", "engine": "e"}


@pytest.fixture
def metrics() -> Metrics:
    meter = Metrics()
    meter.identify("m", "e")
    return meter


def scrape(metrics: Metrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(scrape(metrics)):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(metrics: Metrics, name: str, **labels: str) -> float:
    (found,) = [
        number
        for sample, with_labels, number in samples(metrics)
        if sample == f"tailrace:{name}" and with_labels == LABELLED | labels
    ]
    return found


def finished(reason: str = "stop", code: str = "", **more: float | None) -> FinishedRequest:
    return FinishedRequest(
        reason=reason,
        code=code,
        prompt_tokens=int(more.get("prompt_tokens") or 0),
        completion_tokens=int(more.get("completion_tokens") or 0),
        cached_tokens=int(more.get("cached_tokens") or 0),
        e2e_latency=more.get("e2e_latency") or 0.0,
        time_to_first_token=None,
        time_per_output_token=more.get("time_per_output_token"),
        stream=True,
        logprob_rows=int(more.get("logprob_rows") or 0),
    )


def test_it_is_a_meter(metrics: Metrics) -> None:
    meter: Meter = metrics
    meter.count_merge()
    assert value(metrics, "merged_deltas_total") == 1


def test_every_metric_of_the_table_is_exposed_under_its_kind(metrics: Metrics) -> None:
    exposed = {family.name: family for family in text_string_to_metric_families(scrape(metrics))}
    assert set(exposed) == {metric.full_name for metric in METRICS}
    for metric in METRICS:
        assert exposed[metric.full_name].type == metric.kind.value
        assert exposed[metric.full_name].documentation == metric.help


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_every_sample_has_the_labels(metrics: Metrics) -> None:
    metrics.set_load("e", 1, 2)
    metrics.set_engine_up("e", True)
    metrics.observe_finish(finished())
    for _, labels, _ in samples(metrics):
        assert set(LABELS) <= set(labels)
        assert labels["model_name"] == "m"


def test_first_token(metrics: Metrics) -> None:
    metrics.observe_first_token(0.001)
    metrics.observe_first_token(0.003)
    metrics.observe_first_token(5000.0)
    name = "time_to_first_token_seconds"
    assert value(metrics, f"{name}_bucket", le="0.001") == 1
    assert value(metrics, f"{name}_bucket", le="0.005") == 2
    assert value(metrics, f"{name}_bucket", le="2560.0") == 2
    assert value(metrics, f"{name}_bucket", le="+Inf") == 3
    assert value(metrics, f"{name}_count") == 3
    assert value(metrics, f"{name}_sum") == pytest.approx(5000.004)


@pytest.mark.parametrize("clock", ["inter_token_latency_seconds", "engine_inter_token_latency_seconds"])
def test_tokens_of_one_frame_share_its_gap(metrics: Metrics, clock: str) -> None:
    observe = metrics.observe_inter_token if clock.startswith("inter") else metrics.observe_engine_inter_token
    observe(0.04, 4)
    observe(0.05, 1)
    observe(0.05, 0)
    assert value(metrics, f"{clock}_count") == 5
    assert value(metrics, f"{clock}_sum") == pytest.approx(0.09)
    assert value(metrics, f"{clock}_bucket", le="0.01") == 4
    assert value(metrics, f"{clock}_bucket", le="0.05") == 5


def test_the_two_clocks_are_apart(metrics: Metrics) -> None:
    metrics.observe_inter_token(0.1, 1)
    assert value(metrics, "engine_inter_token_latency_seconds_count") == 0


def test_finished_requests(metrics: Metrics) -> None:
    metrics.observe_finish(
        finished(
            prompt_tokens=7,
            completion_tokens=5,
            cached_tokens=3,
            logprob_rows=5,
            e2e_latency=0.3,
            time_per_output_token=0.02,
        )
    )
    metrics.observe_finish(finished("length", prompt_tokens=1, completion_tokens=1, e2e_latency=0.1))
    assert value(metrics, "prompt_tokens_total") == 8
    assert value(metrics, "prefix_cache_hits_total") == 3
    assert value(metrics, "logprob_rows_total") == 5
    assert value(metrics, "request_generation_tokens_sum") == 6
    assert value(metrics, "request_prompt_tokens_count") == 2
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(0.4)
    assert value(metrics, "request_time_per_output_token_seconds_count") == 1
    assert value(metrics, "request_time_per_output_token_seconds_sum") == pytest.approx(0.02)
    assert value(metrics, "request_success_total", finished_reason="stop") == 1
    assert value(metrics, "request_success_total", finished_reason="length") == 1
    assert not [name for name, _, _ in samples(metrics) if name == "tailrace:request_errors_total"]


def test_errors_and_aborts_are_counted_by_code(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.observe_finish(finished("error", "engine_died"))
    metrics.observe_finish(finished("abort", "client_disconnect"))
    assert value(metrics, "request_errors_total", code="engine_died") == 2
    assert value(metrics, "request_errors_total", code="client_disconnect") == 1
    assert value(metrics, "request_success_total", finished_reason="error") == 2


def test_frames(metrics: Metrics) -> None:
    metrics.count_frame(3, 1, 5)
    metrics.count_frame(2, 0, 2)
    assert value(metrics, "frames_total") == 2
    assert value(metrics, "frame_rows_total") == 5
    assert value(metrics, "unknown_rows_total") == 1
    assert value(metrics, "generation_tokens_total") == 7


def test_load_belongs_to_its_engine_and_ends_with_it(metrics: Metrics) -> None:
    metrics.set_engine_up("e", True)
    metrics.set_load("e", 4, 2)
    metrics.set_load("other", 1, 0)
    assert value(metrics, "num_requests_running") == 4
    assert value(metrics, "num_requests_waiting") == 2
    assert value(metrics, "num_requests_running", engine="other") == 1
    assert value(metrics, "engine_up") == 1
    metrics.set_engine_up("e", False)
    assert value(metrics, "engine_up") == 0
    assert value(metrics, "num_requests_running") == 0
    assert value(metrics, "num_requests_running", engine="other") == 1


def test_edges_reach_from_below_a_millisecond_to_an_hour() -> None:
    """ME-05."""
    edges = {metric.name: metric.edges for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    assert edges["time_to_first_token_seconds"][0] <= 0.001
    assert edges["time_to_first_token_seconds"][-1] >= 600
    assert edges["e2e_request_latency_seconds"][0] <= 0.01
    assert edges["e2e_request_latency_seconds"][-1] >= 3600
    for name in ("inter_token_latency_seconds", "request_time_per_output_token_seconds"):
        assert edges[name][0] < 0.001
    for rising in edges.values():
        assert list(rising) == sorted(set(rising))


@pytest.mark.parametrize("seconds", [0.005, 0.15, 90.0, 1200.0])
def test_p99_of_a_latency_lies_within_its_bucket(metrics: Metrics, seconds: float) -> None:
    """ME-05: a percentile from the exposition is off by no more than the factor between two edges."""
    for _ in range(100):
        metrics.observe_finish(finished(e2e_latency=seconds))
    name = "tailrace:e2e_request_latency_seconds_bucket"
    buckets = [(float(labels["le"]), count) for sample, labels, count in samples(metrics) if sample == name]
    upper = next(edge for edge, count in buckets if count >= 99)
    assert math.isfinite(upper)
    assert seconds <= upper <= max(2.5 * seconds, 0.01)


def test_the_operator_may_set_the_edges_of_latencies() -> None:
    metrics = Metrics([0.5, 1.5])
    metrics.identify("m", "e")
    metrics.observe_first_token(1.0)
    assert value(metrics, "time_to_first_token_seconds_bucket", le="1.5") == 1
    with pytest.raises(ValueError, match="not enough values"):
        value(metrics, "time_to_first_token_seconds_bucket", le="0.001")
    assert value(metrics, "request_prompt_tokens_bucket", le="1.0") == 0


def test_openmetrics_takes_it_too(metrics: Metrics) -> None:
    metrics.observe_finish(finished())
    registry = CollectorRegistry()
    registry.register(metrics)
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    assert encode(registry).endswith(b"# EOF\n")
