"""When a request's tokens came, by the gateway's clock and by the engine's stamps."""

import time

from processors.meter import Meter

monotonic = time.monotonic


class Latency:
    """One request's clock. All times are seconds on a monotonic clock; engine stamps are compared among themselves."""

    __slots__ = ("_engine_last", "_meter", "arrival", "first_token", "last_token")

    def __init__(self, meter: Meter, arrival: float) -> None:
        self._meter = meter
        self._engine_last = 0.0
        self.arrival = arrival
        self.first_token: float | None = None
        self.last_token = 0.0

    def mark(self, now: float, engine_time: float, tokens: int) -> None:
        """Note that `tokens` (at least 1) tokens came in one frame.

        The first frame's tokens after its first one came at the same moment: they count with an interval of 0.
        """
        if self.first_token is None:
            self.first_token = now
            self._meter.observe_first_token(now - self.arrival)
            if tokens > 1:
                self._meter.observe_inter_token(0.0, tokens - 1)
                self._meter.observe_engine_inter_token(0.0, tokens - 1)
        else:
            self._meter.observe_inter_token(now - self.last_token, tokens)
            self._meter.observe_engine_inter_token(engine_time - self._engine_last, tokens)
        self.last_token = now
        self._engine_last = engine_time

    def time_to_first_token(self) -> float | None:
        """Arrival to first token; None before it."""
        return None if self.first_token is None else self.first_token - self.arrival

    def time_per_output_token(self, tokens: int) -> float | None:
        """(last - first) / (tokens - 1), vLLM's definition; None under two tokens."""
        if self.first_token is None or tokens < 2:
            return None
        return (self.last_token - self.first_token) / (tokens - 1)
