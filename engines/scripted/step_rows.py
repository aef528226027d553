"""The rows of one step, gathered into frames."""

from engines.protocol import BatchEmbeddingOut, Finish, Frame
from engines.scripted.sequence import OutputKind, Row, ScriptedSequence
from engines.scripted.token_rows import Header, TokenRows


class EmbeddingRows:
    """The columns of one embedding frame."""

    def __init__(self) -> None:
        self.sequences: list[ScriptedSequence] = []
        self.finishes: list[Finish | None] = []

    def __len__(self) -> int:
        return len(self.sequences)

    def add(self, sequence: ScriptedSequence, row: Row) -> None:
        """Append a row."""
        self.sequences.append(sequence)
        self.finishes.append(row.finish)

    def frame(self, header: Header) -> BatchEmbeddingOut:
        """The frame."""
        return BatchEmbeddingOut(
            engine_id=header.engine_id,
            timestamp=header.timestamp,
            request_ids=[sequence.request.id for sequence in self.sequences],
            finishes=self.finishes,
            prompt_tokens=[sequence.prompt_tokens for sequence in self.sequences],
            step=header.step,
            running=header.running,
            waiting=header.waiting,
            paused=header.paused,
            weight_version=header.weight_version,
            embeddings=[sequence.script.embedding or [] for sequence in self.sequences],
        )


class StepRows:
    """All rows of a step: one frame for each kind of output, or several of at most `rows_per_frame` rows."""

    def __init__(self, rows_per_frame: int | None) -> None:
        self._rows_per_frame = rows_per_frame
        self._open: dict[OutputKind, TokenRows | EmbeddingRows] = {}
        self._all: list[TokenRows | EmbeddingRows] = []

    def add(self, sequence: ScriptedSequence, row: Row) -> None:
        """Append a row to the frame of its kind."""
        rows = self._open.get(sequence.kind)
        if rows is None or len(rows) == self._rows_per_frame:
            rows = EmbeddingRows() if sequence.kind is OutputKind.EMBEDDING else TokenRows()
            self._open[sequence.kind] = rows
            self._all.append(rows)
        rows.add(sequence, row)

    def __len__(self) -> int:
        return len(self._all)

    def frames(self, header: Header) -> list[Frame]:
        """The step's frames, in the order of their first rows."""
        return [rows.frame(header) for rows in self._all]
