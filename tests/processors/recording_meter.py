"""A meter that remembers."""

from processors.meter import FinishedRequest


class RecordingMeter:
    """Keeps what it is told, in order. Gaps are (seconds, tokens); frames are (rows, unknown rows, tokens)."""

    def __init__(self) -> None:
        self.first_tokens: list[float] = []
        self.gaps: list[tuple[float, int]] = []
        self.engine_gaps: list[tuple[float, int]] = []
        self.finished: list[FinishedRequest] = []
        self.frames: list[tuple[int, int, int]] = []
        self.merges = 0
        self.load: dict[str, tuple[int, int]] = {}
        self.up: dict[str, bool] = {}

    def observe_first_token(self, seconds: float) -> None:
        """Keep."""
        self.first_tokens.append(seconds)

    def observe_inter_token(self, seconds: float, tokens: int) -> None:
        """Keep."""
        self.gaps.append((seconds, tokens))

    def observe_engine_inter_token(self, seconds: float, tokens: int) -> None:
        """Keep."""
        self.engine_gaps.append((seconds, tokens))

    def observe_finish(self, request: FinishedRequest) -> None:
        """Keep."""
        self.finished.append(request)

    def count_frame(self, rows: int, unknown_rows: int, tokens: int) -> None:
        """Keep."""
        self.frames.append((rows, unknown_rows, tokens))

    def count_merge(self) -> None:
        """Count."""
        self.merges += 1

    def set_load(self, engine_id: str, running: int, waiting: int) -> None:
        """Keep the latest."""
        self.load[engine_id] = (running, waiting)

    def set_engine_up(self, engine_id: str, up: bool) -> None:
        """Keep the latest."""
        self.up[engine_id] = up
