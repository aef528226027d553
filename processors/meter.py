"""What the processors measure, as a protocol: the app floor implements it, tests record it, NO_METER drops it."""

from typing import Protocol

import msgspec


class FinishedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request at its end. Times are seconds on the gateway's monotonic clock; None where nothing was seen.

    reason: stop, length, abort or error; code: the error's code or the abort's cause ("client_disconnect" ...).
    time_per_output_token: (last token - first token) / (tokens - 1), None under two tokens.
    """

    reason: str
    code: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float
    time_to_first_token: float | None
    time_per_output_token: float | None
    stream: bool
    logprob_rows: int


class Meter(Protocol):
    """Takes measurements on the hot path: every method is cheap and never raises."""

    def observe_first_token(self, seconds: float) -> None:
        """Seconds from the request's arrival to its first token at the gateway."""

    def observe_inter_token(self, seconds: float, tokens: int) -> None:
        """`tokens` tokens, `seconds` after the one before on the gateway's clock: each counts seconds / tokens."""

    def observe_engine_inter_token(self, seconds: float, tokens: int) -> None:
        """The same by the engine's own stamps."""

    def observe_finish(self, request: FinishedRequest) -> None:
        """A request that came to any end."""

    def count_frame(self, rows: int, unknown_rows: int, tokens: int) -> None:
        """One engine frame: its rows, those of unknown requests, its tokens."""

    def count_merge(self) -> None:
        """A delta that was merged for a reader not ready to take it."""

    def set_load(self, engine_id: str, running: int, waiting: int) -> None:
        """Requests in the engine after its last step."""

    def set_engine_up(self, engine_id: str, up: bool) -> None:
        """Whether the engine takes requests."""


class _NoMeter:
    def observe_first_token(self, seconds: float) -> None: ...

    def observe_inter_token(self, seconds: float, tokens: int) -> None: ...

    def observe_engine_inter_token(self, seconds: float, tokens: int) -> None: ...

    def observe_finish(self, request: FinishedRequest) -> None: ...

    def count_frame(self, rows: int, unknown_rows: int, tokens: int) -> None: ...

    def count_merge(self) -> None: ...

    def set_load(self, engine_id: str, running: int, waiting: int) -> None: ...

    def set_engine_up(self, engine_id: str, up: bool) -> None: ...


NO_METER: Meter = _NoMeter()
