"""What the layers know of one HTTP exchange, kept in its scope's state and filled by one tap on `send`."""

import time
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

_KEY = "exchange"


@dataclass(slots=True)
class Exchange:
    """One request and its answer. Times are seconds on the monotonic clock.

    status: 0 until the answer starts. complete: its last byte was handed to the server. failed: a fault of ours cut it.
    """

    request_id: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    complete: bool = False
    failed: bool = False

    @property
    def seconds(self) -> float:
        """Time since the request arrived."""
        return time.perf_counter() - self.started

    @property
    def outcome(self) -> int:
        """The status to log: 500 for a fault of ours, 499 where the client left before the end of its answer."""
        if self.failed:
            return 500
        return self.status if self.complete else 499

    def enter(self, scope: Scope) -> None:
        """Make this the scope's exchange; routes find its id as `request.state.request_id`."""
        state: dict[str, Any] = scope.setdefault("state", {})
        state[_KEY] = self
        state["request_id"] = self.request_id


def exchange_of(scope: Scope) -> Exchange:
    """Find the exchange that the outermost layer entered."""
    exchange: Exchange = scope["state"][_KEY]
    return exchange
