"""From a request's new token ids to its new text: detokenize, hide, match stop strings, cut."""

from collections.abc import Collection, Sequence

import msgspec

from engines.protocol import Finish, FinishKind
from processors.detokenizer import Detokenizer
from processors.stops import StopMatch, StopMatcher


class TextParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a request wants its text. `stop`: strings that end it; min_tokens holds them back as it does the engine's."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0


class TextPiece(msgspec.Struct, gc=False):
    """New text of a row.

    kept: tokens that belong to the answer, the rest came after a stop string. lengths: for each kept token the code
    points that it added to the uncut text. stop: the stop string that ended the text.
    """

    text: str
    kept: int
    lengths: list[int]
    stop: str | None = None


class TextStream:
    """One sequence's text. Without a detokenizer (raw-token mode) the text is empty.

    stop_token_ids: those that end the sequence, the model's own included.
    """

    def __init__(
        self, detokenizer: Detokenizer | None, params: TextParams, stop_token_ids: Collection[int] = ()
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopMatcher(params.stop, include_stop=params.include_stop) if params.stop else None
        self._min_tokens = params.min_tokens
        self._include_stop = params.include_stop
        self._hidden = frozenset() if params.include_stop else frozenset(stop_token_ids)
        self._tokens = 0
        self._unclaimed = 0

    def feed(self, token_ids: Sequence[int], finish: Finish | None) -> TextPiece:
        """Take a row's tokens. With a finish, everything held is released.

        A stop token stays hidden unless the request includes stops: one of the known ids, wherever the engine puts
        the finish, or else the last token of a STOP finish without a stop string.
        """
        if self._detokenizer is None:
            return TextPiece("", len(token_ids), [0] * len(token_ids))
        if finish is None and self._stops is None and len(token_ids) == 1 and token_ids[0] not in self._hidden:
            text = self._detokenizer.feed(token_ids[0])
            return TextPiece(text, 1, [len(text)])
        parts: list[str] = []
        lengths: list[int] = []
        stop_token_at = -1
        if finish is not None and finish.kind is FinishKind.STOP and not isinstance(finish.matched, str):
            stop_token_at = len(token_ids) - 1 if not self._include_stop else -1
        for place, token_id in enumerate(token_ids):
            self._tokens += 1
            hidden = place == stop_token_at or token_id in self._hidden
            text = "" if hidden else self._detokenizer.feed(token_id)
            lengths.append(len(text))
            if text and (match := self._match(text, parts)) is not None:
                return TextPiece("".join(parts), place + 1, lengths, match.stop)
        kept = len(token_ids)
        if finish is not None and (match := self._finish(parts, lengths)) is not None:
            return TextPiece("".join(parts), kept, lengths, match.stop)
        return TextPiece(parts[0] if len(parts) == 1 else "".join(parts), kept, lengths)

    def feed_text(self, text: str, token_count: int, finish: Finish | None) -> TextPiece:
        """Take a row whose text the engine made: it counts on the row's last token, or the next one that comes."""
        parts: list[str] = []
        self._tokens += token_count
        lengths = [0] * token_count
        self._unclaimed += len(text)
        if lengths:
            lengths[-1], self._unclaimed = self._unclaimed, 0
        match = self._match(text, parts)
        if match is not None:
            return TextPiece("".join(parts), token_count, lengths, match.stop)
        if finish is not None and self._stops is not None:
            parts.append(self._stops.flush())
        return TextPiece("".join(parts), token_count, lengths)

    def _match(self, text: str, parts: list[str]) -> StopMatch | None:
        """Add what may be released to `parts`; return the match that ends the text."""
        if self._stops is None:
            parts.append(text)
            return None
        released = self._stops.feed(text, armed=self._tokens > self._min_tokens)
        if isinstance(released, StopMatch):
            parts.append(released.text)
            return released
        parts.append(released)
        return None

    def _finish(self, parts: list[str], lengths: list[int]) -> StopMatch | None:
        """Release the detokenizer's and then the matcher's rest; the former belongs to the last token."""
        assert self._detokenizer is not None
        rest = self._detokenizer.flush()
        if rest:
            if lengths:
                lengths[-1] += len(rest)
            if (match := self._match(rest, parts)) is not None:
                return match
        if self._stops is not None:
            parts.append(self._stops.flush())
        return None
