"""Who runs and who waits in the scripted engine."""

import bisect
import itertools

from engines.scripted.sequence import ScriptedSequence


class Slots:
    """At most `max_running` sequences that get rows, and a queue of at most `queue_limit`, lower priority first.

    `live` are both, in order of arrival; `running` in the order in which they began to run.
    """

    def __init__(self, max_running: int, queue_limit: int) -> None:
        self._max_running = max_running
        self._queue_limit = queue_limit
        self._arrivals = itertools.count()
        self._queue: list[tuple[int, int, ScriptedSequence]] = []
        self.running: dict[str, ScriptedSequence] = {}
        self.live: dict[str, ScriptedSequence] = {}

    def enter(self, sequence: ScriptedSequence) -> bool:
        """Let a sequence run or wait; False if there is no room for either."""
        if len(self.running) < self._max_running:
            self.running[sequence.id] = sequence
        elif len(self._queue) < self._queue_limit:
            bisect.insort(self._queue, (sequence.request.priority, next(self._arrivals), sequence))
        else:
            return False
        self.live[sequence.id] = sequence
        return True

    def leave(self, request_id: str) -> None:
        """Forget a sequence, if it is known, and let the next one run."""
        if self.live.pop(request_id, None) is None:
            return
        if self.running.pop(request_id, None) is None:
            self._queue = [entry for entry in self._queue if entry[2].id != request_id]
        elif self._queue:
            _, _, first = self._queue.pop(0)
            self.running[first.id] = first

    def clear(self) -> None:
        """Forget all."""
        self.live.clear()
        self.running.clear()
        self._queue.clear()
