"""The vocabulary between gateway and engines: typed requests down, typed batch frames up.

A frame holds the output of one engine step for all its requests, in columns. Row i of a frame belongs to
`request_ids[i]`. Flat columns hold the rows' parts one after another; a count column says how long each part is.
An empty count column stands for all zeros. Everything in a frame is a delta but the columns named as totals.

Log-probabilities are natural logarithms; ranks are places in the whole vocabulary, 1 is the most likely,
0 where the engine gives none. `-inf` is a legal value here, NaN is not.
"""

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class LogprobsMode(enum.StrEnum):
    """Which distribution logprobs describe: the model's own, or the one sampled from (vLLM's names)."""

    RAW = "raw_logprobs"
    PROCESSED = "processed_logprobs"


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen. Neutral values switch a step off: temperature 0 is greedy, top_k 0 and top_p 1 are off."""

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0


class LogprobParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which log-probabilities a request wants at each position besides the sampled token's own.

    `top_k` alternatives, the listed `token_ids`, and from prompt position `prompt_start` on the same for the prompt.
    """

    top_k: int = 0
    token_ids: tuple[int, ...] = ()
    prompt_start: int | None = None
    mode: LogprobsMode = LogprobsMode.RAW


class GrammarKind(enum.StrEnum):
    """What a grammar's source is written in."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"


class Grammar(msgspec.Struct, frozen=True):
    """A constraint on the output's text."""

    kind: GrammarKind
    source: str


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence to generate. `id` is the gateway's own and unique; `priority` orders queues, lower first.

    `continues` names the segment index at which a paused or moved request goes on; `lora` an adapter by name.
    """

    id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    logprobs: LogprobParams | None = None
    grammar: Grammar | None = None
    priority: int = 0
    lora: str | None = None
    cache_salt: str | None = None
    return_hidden_states: bool = False
    continues: int = 0
    trace_headers: dict[str, str] = {}


class FinishKind(enum.StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Finish(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a sequence.

    `matched` is the stop token id or stop string that ended it; None for the model's own end-of-sequence token.
    For ERROR, `code` is a code of `engines.errors` and `message` is fit for clients.
    """

    kind: FinishKind
    matched: int | str | None = None
    code: str = ""
    message: str = ""


class TokenLogprobs(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Log-probabilities of a frame's new tokens, in columns.

    counts[i]: entries of row i, 0 or the row's token count. values, ranks: one per entry, of the sampled token.
    top_counts[i]: k of row i; top_ids, top_values: k per entry, most likely first, distinct ids.
    chosen_counts[i]: number of ids that row i asked for; chosen_values, chosen_ranks: one per entry and id,
    in the order of the request's `token_ids`.
    """

    counts: list[int]
    values: list[float]
    ranks: list[int]
    top_counts: list[int] = []
    top_ids: list[int] = []
    top_values: list[float] = []
    chosen_counts: list[int] = []
    chosen_values: list[float] = []
    chosen_ranks: list[int] = []


class PromptLogprobs(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Log-probabilities of the prompt positions start .. start + len(token_ids) of one request: a piece, in order.

    Columns as in TokenLogprobs. The first position that the request asked for has no value: it is None in `values`,
    rank 0, and its alternatives are left out, so top_ids and the chosen columns begin with the second position.
    """

    start: int
    token_ids: list[int]
    values: list[float | None]
    ranks: list[int]
    top_k: int = 0
    top_ids: list[int] = []
    top_values: list[float] = []
    chosen_values: list[float] = []
    chosen_ranks: list[int] = []


class BatchOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What all frames share.

    timestamp: seconds on the engine's monotonic clock at the end of the step. step: steps since the engine's start.
    running, waiting: requests in the engine after the step. prompt_tokens: totals. finishes: None while running.
    extra_info, hidden_states: by row index, for the rows that have them.
    """

    engine_id: str
    timestamp: float
    request_ids: list[str]
    finishes: list[Finish | None]
    prompt_tokens: list[int]
    step: int = 0
    running: int = 0
    waiting: int = 0
    paused: bool = False
    weight_version: str = "default"
    extra_info: dict[int, dict[str, Any]] = {}


class BatchTokenOut(BatchOut, tag="tokens", kw_only=True, omit_defaults=True):
    """Token ids of one step.

    token_counts[i]: new tokens of row i; token_ids: all of them, flat. completion_tokens, cached_tokens: totals.
    multi_ids: further codebooks' ids by row index, one list a step. accepted_draft_tokens: totals by speculative
    decoding, verify_steps: totals of its steps; both empty without it. segments[i]: index of the row's span
    under one weight version.
    """

    token_counts: list[int]
    token_ids: list[int]
    completion_tokens: list[int]
    cached_tokens: list[int]
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: dict[int, PromptLogprobs] = {}
    hidden_states: dict[int, list[list[float]]] = {}
    multi_ids: dict[int, list[list[int]]] = {}
    accepted_draft_tokens: list[int] = []
    verify_steps: list[int] = []
    segments: list[int] = []


class BatchStrOut(BatchTokenOut, tag="texts", kw_only=True, omit_defaults=True):
    """As BatchTokenOut, from an engine that detokenizes and matches stop strings itself: texts[i] is new text."""

    texts: list[str]


class BatchEmbeddingOut(BatchOut, tag="embeddings", kw_only=True, omit_defaults=True):
    """One vector a row."""

    embeddings: list[list[float]]


Frame = BatchTokenOut | BatchStrOut | BatchEmbeddingOut


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do; the gateway refuses the rest by name before it is sent.

    sampling: names of the SamplingParams fields that it honours. max_top_logprobs: None is no limit.
    """

    sampling: frozenset[str]
    token_logprobs: bool = False
    max_top_logprobs: int | None = None
    chosen_logprobs: bool = False
    prompt_logprobs: bool = False
    logprobs_modes: frozenset[LogprobsMode] = frozenset()
    grammar: bool = False
    priority: bool = False
    lora: bool = False
    hidden_states: bool = False
    embeddings: bool = False
    pause: bool = False


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a ready engine says of itself. `tokenizer` is the directory or name its tokenizer loads from."""

    engine_id: str
    model: str
    tokenizer: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    capabilities: Capabilities
    device: str = ""
    dtype: str = ""
    weight_version: str = "default"


class EngineState(enum.StrEnum):
    """Whether an engine takes requests."""

    STARTING = "starting"
    READY = "ready"
    DOWN = "down"


class EngineListener(Protocol):
    """Who hears from an engine. Called on the gateway's loop; must not block and must not raise."""

    def on_frame(self, frame: Frame) -> None:
        """Take the output of one step."""

    def on_down(self, engine_id: str, reason: str) -> None:
        """Take note that the engine is gone: every request in it is lost, no frame of theirs will follow."""

    def on_up(self, info: EngineInfo) -> None:
        """Take note that the engine is ready, at first or again."""


class EngineClient(Protocol):
    """The gateway's side of one engine."""

    @property
    def state(self) -> EngineState:
        """Whether requests are taken now."""

    @property
    def info(self) -> EngineInfo:
        """What the engine said of itself; EngineUnavailable before it first was ready."""

    async def start(self, listener: EngineListener) -> None:
        """Connect and return once ready. EngineUnavailable if that can't be."""

    def submit(self, request: EngineRequest) -> None:
        """Hand over a request; its rows follow in frames, the last one with a finish. EngineUnavailable if down."""

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests within one step; no row of theirs needs to follow. Unknown ids are ignored."""

    async def close(self) -> None:
        """Let go of the engine; stop it if it was started here. Safe to call twice."""
