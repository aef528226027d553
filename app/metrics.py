"""What the processors measure, in plain numbers that a scrape turns into Prometheus families."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from app import metrics_table as table
from app.histogram import Histogram
from app.metrics_table import LABELS, METRICS, Kind, Metric
from processors.meter import FinishedRequest

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Metrics(Collector):
    """The Meter of one app, and a collector for its registry.

    `edges` replaces those of every histogram in seconds. `model_name` and `engine` label what isn't given an engine;
    they are known once the engine is.
    """

    def __init__(self, edges: Sequence[float] | None = None) -> None:
        self.model_name = ""
        self.engine = ""
        self._histograms = {
            metric.name: Histogram(edges if edges and metric.in_seconds else metric.edges)
            for metric in METRICS
            if metric.kind is Kind.HISTOGRAM
        }
        self._counters: dict[str, int] = {
            metric.name: 0 for metric in METRICS if metric.kind is Kind.COUNTER and metric.label is None
        }
        self._labelled: dict[str, dict[str, int]] = {metric.name: {} for metric in METRICS if metric.label is not None}
        self._gauges: dict[str, dict[str, float]] = {metric.name: {} for metric in METRICS if metric.kind is Kind.GAUGE}
        self._first_token = self._histograms[table.FIRST_TOKEN.name]
        self._inter_token = self._histograms[table.INTER_TOKEN.name]
        self._engine_inter_token = self._histograms[table.ENGINE_INTER_TOKEN.name]

    def identify(self, model_name: str, engine: str) -> None:
        """Set the labels."""
        self.model_name = model_name
        self.engine = engine

    def observe_first_token(self, seconds: float) -> None:
        """Seconds from the request's arrival to its first token at the gateway."""
        self._first_token.observe(seconds)

    def observe_inter_token(self, seconds: float, tokens: int) -> None:
        """`tokens` tokens, `seconds` after the one before on the gateway's clock."""
        if tokens:
            self._inter_token.observe_many(seconds / tokens, tokens)

    def observe_engine_inter_token(self, seconds: float, tokens: int) -> None:
        """The same by the engine's own stamps."""
        if tokens:
            self._engine_inter_token.observe_many(seconds / tokens, tokens)

    def observe_finish(self, request: FinishedRequest) -> None:
        """A request that came to any end."""
        histograms, counters = self._histograms, self._counters
        histograms[table.E2E.name].observe(request.e2e_latency)
        histograms[table.REQUEST_PROMPT_TOKENS.name].observe(request.prompt_tokens)
        histograms[table.REQUEST_GENERATION_TOKENS.name].observe(request.completion_tokens)
        if request.time_per_output_token is not None:
            histograms[table.TIME_PER_TOKEN.name].observe(request.time_per_output_token)
        counters[table.PROMPT_TOKENS.name] += request.prompt_tokens
        counters[table.PREFIX_CACHE_HITS.name] += request.cached_tokens
        counters[table.LOGPROB_ROWS.name] += request.logprob_rows
        self._count_by(table.SUCCESS, request.reason)
        if request.reason in ("abort", "error"):
            self._count_by(table.ERRORS, request.code)

    def count_frame(self, rows: int, unknown_rows: int, tokens: int) -> None:
        """One engine frame: its rows, those of unknown requests, its tokens."""
        counters = self._counters
        counters[table.FRAMES.name] += 1
        counters[table.FRAME_ROWS.name] += rows
        counters[table.UNKNOWN_ROWS.name] += unknown_rows
        counters[table.GENERATION_TOKENS.name] += tokens

    def count_merge(self) -> None:
        """A delta that was merged for a reader not ready to take it."""
        self._counters[table.MERGED_DELTAS.name] += 1

    def set_load(self, engine_id: str, running: int, waiting: int) -> None:
        """Requests in the engine after its last step."""
        self._gauges[table.RUNNING.name][engine_id] = running
        self._gauges[table.WAITING.name][engine_id] = waiting

    def set_engine_up(self, engine_id: str, up: bool) -> None:
        """Whether the engine takes requests; one that doesn't has none."""
        self._gauges[table.ENGINE_UP.name][engine_id] = float(up)
        if not up:
            self.set_load(engine_id, 0, 0)

    def collect(self) -> Iterator[Family]:
        """Make the families of one scrape; may run in a thread of its own."""
        return (self._family(metric) for metric in METRICS)

    def _count_by(self, metric: Metric, value: str) -> None:
        counts = self._labelled[metric.name]
        counts[value] = counts.get(value, 0) + 1

    def _family(self, metric: Metric) -> Family:
        own = (self.model_name, self.engine)
        if metric.kind is Kind.HISTOGRAM:
            histogram = self._histograms[metric.name]
            histograms = HistogramMetricFamily(metric.full_name, metric.help, labels=LABELS)
            histograms.add_metric(own, histogram.buckets(), histogram.total)
            return histograms
        if metric.kind is Kind.GAUGE:
            gauges = GaugeMetricFamily(metric.full_name, metric.help, labels=LABELS)
            for engine_id, value in self._gauges[metric.name].copy().items():
                gauges.add_metric((self.model_name, engine_id), value)
            return gauges
        counters = CounterMetricFamily(metric.full_name, metric.help, labels=(*LABELS, *filter(None, [metric.label])))
        if metric.label is None:
            counters.add_metric(own, self._counters[metric.name])
        else:
            for label, count in self._labelled[metric.name].copy().items():
                counters.add_metric((*own, label), count)
        return counters
