"""Every metric of ours in one table: name, kind, help, extra label, bucket edges.

Names and meanings are vLLM's where it has the metric, under our own namespace; edges of the latencies contain
vLLM's, so that its dashboards and OpenTelemetry's edges find theirs, and go on to less than a millisecond and an hour.
All carry the labels of LABELS; a counter's exported name ends in `_total`.
"""

import enum
from dataclasses import dataclass

NAMESPACE = "tailrace:"
LABELS = ("model_name", "engine")


class Kind(enum.Enum):
    """What a metric is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One metric. `label` is a further label besides LABELS; `edges` are upper bounds, in seconds or tokens."""

    name: str
    kind: Kind
    help: str
    label: str | None = None
    edges: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """Name with the namespace."""
        return NAMESPACE + self.name

    @property
    def in_seconds(self) -> bool:
        """Whether its edges are seconds, which an operator may set."""
        return self.kind is Kind.HISTOGRAM and self.name.endswith("_seconds")


FIRST_TOKEN_EDGES = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_EDGES = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_EDGES = (
    *(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8),
    *(1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 7680.0),
)
LENGTH_EDGES = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))

FIRST_TOKEN = Metric(
    "time_to_first_token_seconds",
    Kind.HISTOGRAM,
    "Seconds from a request's arrival to its first token at the gateway.",
    edges=FIRST_TOKEN_EDGES,
)
INTER_TOKEN = Metric(
    "inter_token_latency_seconds",
    Kind.HISTOGRAM,
    "Seconds between tokens on the gateway's clock: n tokens in one frame count n times its gap / n.",
    edges=TOKEN_EDGES,
)
ENGINE_INTER_TOKEN = Metric(
    "engine_inter_token_latency_seconds",
    Kind.HISTOGRAM,
    "Seconds between tokens by the engine's own stamps: n tokens in one frame count n times its gap / n.",
    edges=TOKEN_EDGES,
)
TIME_PER_TOKEN = Metric(
    "request_time_per_output_token_seconds",
    Kind.HISTOGRAM,
    "Per request of two tokens or more: seconds from its first to its last token / (tokens - 1).",
    edges=TOKEN_EDGES,
)
E2E = Metric(
    "e2e_request_latency_seconds",
    Kind.HISTOGRAM,
    "Seconds from a request's arrival to its end, whatever ended it.",
    edges=REQUEST_EDGES,
)
REQUEST_PROMPT_TOKENS = Metric(
    "request_prompt_tokens", Kind.HISTOGRAM, "Prompt tokens per request.", edges=LENGTH_EDGES
)
REQUEST_GENERATION_TOKENS = Metric(
    "request_generation_tokens",
    Kind.HISTOGRAM,
    "Tokens returned per request; their sum is that of all completion_tokens.",
    edges=LENGTH_EDGES,
)
PROMPT_TOKENS = Metric("prompt_tokens", Kind.COUNTER, "Prompt tokens of ended requests.")
GENERATION_TOKENS = Metric(
    "generation_tokens", Kind.COUNTER, "Tokens that came from the engine, those after a stop or an abort too."
)
PREFIX_CACHE_HITS = Metric("prefix_cache_hits", Kind.COUNTER, "Prompt tokens found in the engine's prefix cache.")
SUCCESS = Metric(
    "request_success", Kind.COUNTER, "Ended requests by why they ended, errors and aborts too.", label="finished_reason"
)
ERRORS = Metric("request_errors", Kind.COUNTER, "Requests that ended by an error or an abort, by code.", label="code")
FRAMES = Metric("frames", Kind.COUNTER, "Batch frames that came from the engine.")
FRAME_ROWS = Metric("frame_rows", Kind.COUNTER, "Rows of these frames.")
UNKNOWN_ROWS = Metric("unknown_rows", Kind.COUNTER, "Rows of requests that had ended here before the engine knew.")
MERGED_DELTAS = Metric("merged_deltas", Kind.COUNTER, "Deltas merged because their reader was not ready.")
LOGPROB_ROWS = Metric("logprob_rows", Kind.COUNTER, "Positions of ended requests that carried logprobs.")
RUNNING = Metric("num_requests_running", Kind.GAUGE, "Requests that the engine was working on after its last step.")
WAITING = Metric("num_requests_waiting", Kind.GAUGE, "Requests that waited in the engine after its last step.")
ENGINE_UP = Metric("engine_up", Kind.GAUGE, "1 while the engine takes requests, else 0.")

METRICS = (
    *(FIRST_TOKEN, INTER_TOKEN, ENGINE_INTER_TOKEN, TIME_PER_TOKEN, E2E),
    *(REQUEST_PROMPT_TOKENS, REQUEST_GENERATION_TOKENS),
    *(PROMPT_TOKENS, GENERATION_TOKENS, PREFIX_CACHE_HITS, SUCCESS, ERRORS),
    *(FRAMES, FRAME_ROWS, UNKNOWN_ROWS, MERGED_DELTAS, LOGPROB_ROWS),
    *(RUNNING, WAITING, ENGINE_UP),
)
