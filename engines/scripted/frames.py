"""From the rows of one step to frames."""

from collections.abc import Sequence

from engines.protocol import BatchEmbeddingOut, Frame
from engines.scripted.sequence import OutputKind, Row
from engines.scripted.token_frame import Header, text_frame, token_frame


def frames_of(rows: Sequence[Row], header: Header, rows_per_frame: int | None) -> list[Frame]:
    """One frame for each kind of output, or several of at most `rows_per_frame` rows."""
    kinds = {row.sequence.kind for row in rows}
    return [
        _frame_of(kind, part, header)
        for kind in OutputKind
        if kind in kinds
        for part in _parts([row for row in rows if row.sequence.kind is kind], rows_per_frame)
    ]


def _parts(rows: list[Row], size: int | None) -> list[list[Row]]:
    if size is None:
        return [rows]
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _frame_of(kind: OutputKind, rows: Sequence[Row], header: Header) -> Frame:
    match kind:
        case OutputKind.TOKENS:
            return token_frame(rows, header)
        case OutputKind.TEXT:
            return text_frame(rows, header)
        case OutputKind.EMBEDDING:
            return _embedding_frame(rows, header)


def _embedding_frame(rows: Sequence[Row], header: Header) -> BatchEmbeddingOut:
    return BatchEmbeddingOut(
        engine_id=header.engine_id,
        timestamp=header.timestamp,
        step=header.step,
        running=header.running,
        waiting=header.waiting,
        weight_version=header.weight_version,
        request_ids=[row.sequence.id for row in rows],
        finishes=[row.finish for row in rows],
        prompt_tokens=[row.sequence.prompt_tokens for row in rows],
        embeddings=[row.sequence.script.embedding or [] for row in rows],
    )
