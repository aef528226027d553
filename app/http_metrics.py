"""The http_* metrics of prometheus-fastapi-instrumentator, with label values that no client can multiply."""

import functools
from collections.abc import Callable, Sequence

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator, metrics
from prometheus_fastapi_instrumentator.metrics import Info

from app.metrics_table import REQUEST_EDGES

Instrumentation = Callable[[Info], None]

UNMATCHED = "unmatched"
OTHER_METHOD = "OTHER"
_ROUTE_EDGES = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1200.0, 3600.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNTEMPLATED = "none"  # the instrumentator's word for a path without a route


def instrument_http(app: FastAPI, registry: CollectorRegistry, edges: Sequence[float] | None = None) -> None:
    """Add the instrumentator's layer around those added so far.

    Durations run to the last byte; http_response_start_seconds ends where the answer starts. Bodies are never kept.
    """
    route_edges = edges or _ROUTE_EDGES
    default = metrics.default(
        latency_highr_buckets=edges or REQUEST_EDGES, latency_lowr_buckets=route_edges, registry=registry
    )
    start = metrics.latency(
        metric_name="http_response_start_seconds",
        metric_doc="Seconds from a request's arrival to the start of its answer.",
        should_include_status=False,
        should_exclude_streaming_duration=True,
        buckets=route_edges,
        registry=registry,
    )
    instrumentator = Instrumentator(
        should_group_status_codes=True, should_group_untemplated=True, body_handlers=[], registry=registry
    )
    instrumentator.add(*(bounded(each) for each in (default, start) if each is not None)).instrument(app)


def bounded(instrumentation: Instrumentation) -> Instrumentation:
    """Fold the labels of an instrumentation: rare methods into one, paths without a route into one."""

    @functools.wraps(instrumentation)
    def record(info: Info) -> None:
        if info.method not in _METHODS:
            info.method = OTHER_METHOD
        if info.modified_handler == _UNTEMPLATED:
            info.modified_handler = UNMATCHED
        instrumentation(info)

    return record
