"""One frame of tokens as its rows see it: what is the same for all of them is found out once."""

from engines.protocol import BatchStrOut, BatchTokenOut
from processors.delta import Extras


class StepView:
    """A frame and when it came (seconds on the gateway's monotonic clock). texts: those that the engine made."""

    __slots__ = ("frame", "now", "texts", "with_extras")

    def __init__(self, frame: BatchTokenOut, now: float) -> None:
        self.frame = frame
        self.now = now
        self.texts = frame.texts if isinstance(frame, BatchStrOut) else None
        self.with_extras = bool(
            frame.hidden_states
            or frame.multi_ids
            or frame.extra_info
            or frame.accepted_draft_tokens
            or frame.verify_steps
            or frame.segments
        )

    def extras(self, row: int) -> Extras:
        """What the frame holds for a row besides tokens, text and logprobs, in lists of the row's own."""
        frame = self.frame
        return Extras(
            hidden_states=list(frame.hidden_states.get(row, ())),
            multi_ids=list(frame.multi_ids.get(row, ())),
            extra_info=frame.extra_info.get(row),
            accepted_draft_tokens=frame.accepted_draft_tokens[row] if frame.accepted_draft_tokens else None,
            verify_steps=frame.verify_steps[row] if frame.verify_steps else None,
            segment=frame.segments[row] if frame.segments else 0,
        )
