"""What the output loop keeps of one live request."""

from collections.abc import Collection

from engines.errors import EngineFault, error_of
from engines.protocol import Finish, FinishKind, LogprobParams
from processors.collector import Collector
from processors.completeness import LogprobCompleteness
from processors.delta import Delta, Logprobs
from processors.latency import Latency
from processors.meter import FinishedRequest, Meter
from processors.step import StepView
from processors.text import TextStream


class RequestState:
    """One row's cursor: counts, text, latency, outlet. names: under which clients know the request."""

    __slots__ = (
        "cached_tokens",
        "collector",
        "completion_tokens",
        "id",
        "latency",
        "logprob_rows",
        "logprobs",
        "meter",
        "names",
        "prompt_tokens",
        "stream",
        "text",
    )

    def __init__(
        self,
        request_id: str,
        text: TextStream,
        *,
        prompt_tokens: int,
        logprobs: LogprobParams | None,
        stream: bool,
        meter: Meter,
        arrival: float,
        names: Collection[str] = (),
    ) -> None:
        self.id = request_id
        self.names = names
        self.text = text
        self.logprobs = LogprobCompleteness(logprobs, prompt_tokens)
        self.stream = stream
        self.meter = meter
        self.collector = Collector(meter)
        self.latency = Latency(meter, arrival)
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.logprob_rows = 0

    def advance(self, step: StepView, row: int, token_ids: list[int], logprobs: Logprobs | None) -> Finish | None:
        """Take this request's row of a frame and put its delta; return the finish if the row ends the request.

        Raises what a row that ends in an error says, and EngineFault where the row contradicts the request:
        counts that don't add up, logprobs missing. Tokens after a stop string are cut from all columns.
        """
        frame = step.frame
        finish = frame.finishes[row]
        if finish is not None and finish.kind is FinishKind.ERROR:
            raise error_of(finish.code, finish.message)
        if frame.completion_tokens[row] != self.completion_tokens + len(token_ids):
            raise EngineFault("The engine's token count does not match the tokens it sent.")
        logprobs = self.logprobs.of_tokens(token_ids, logprobs)
        prompt = self.logprobs.of_prompt(frame.prompt_logprobs.get(row), finish)
        extras = step.extras(row) if step.with_extras else None
        if step.texts is None:
            piece = self.text.feed(token_ids, finish)
        else:
            piece = self.text.feed_text(step.texts[row], len(token_ids), finish)
        if piece.stop is not None:
            finish = Finish(FinishKind.STOP, matched=piece.stop)
            if extras is not None:
                extras.cut(len(token_ids) - piece.kept)
            if logprobs is not None:
                logprobs.cut(piece.kept)
            del token_ids[piece.kept :]
        if token_ids:
            self.latency.mark(step.now, frame.timestamp, len(token_ids))
        self.completion_tokens += len(token_ids)
        if frame.cached_tokens:
            self.cached_tokens = frame.cached_tokens[row]
        if logprobs is not None:
            self.logprob_rows += len(logprobs.values)
        delta = Delta(
            text=piece.text,
            token_ids=token_ids,
            lengths=piece.lengths,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            logprobs=logprobs,
            finish=finish,
            extras=extras,
            weight_version=frame.weight_version,
        )
        if prompt is not None:
            delta.prompt_logprobs.append(prompt)
        self.collector.put(delta)
        return finish

    def abort(self, message: str) -> None:
        """End the request's output with an abort: what was held back comes with it."""
        finish = Finish(FinishKind.ABORT, message=message)
        self.collector.put(
            Delta(
                text=self.text.feed([], finish).text,
                token_ids=[],
                lengths=[],
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.completion_tokens,
                cached_tokens=self.cached_tokens,
                finish=finish,
            )
        )

    def finished(self, reason: str, code: str, now: float) -> FinishedRequest:
        """The request's record at its end."""
        return FinishedRequest(
            reason=reason,
            code=code,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            e2e_latency=now - self.latency.arrival,
            time_to_first_token=self.latency.time_to_first_token(),
            time_per_output_token=self.latency.time_per_output_token(self.completion_tokens),
            stream=self.stream,
            logprob_rows=self.logprob_rows,
        )
