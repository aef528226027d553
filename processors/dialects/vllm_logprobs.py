"""vLLM's logprobs: one object a position, keyed by token id, with logprob, rank and text.

The token that stands there comes first, then the alternatives, each id once.
"""

from engines.protocol import PromptLogprobs
from processors.delta import Logprobs
from processors.dialects.positions import Positions, Shown, output_positions, prompt_positions
from processors.vocabulary import Vocabulary


class RankedLogprobs:
    """Renders positions with the alternatives that are to be shown. Without a vocabulary texts are null."""

    def __init__(self, vocabulary: Vocabulary | None, shown: Shown) -> None:
        self._vocabulary = vocabulary
        self._shown = shown

    def output(self, token_ids: list[int], logprobs: Logprobs) -> list[bytes]:
        """One object for each generated token."""
        positions = output_positions(token_ids, logprobs, self._shown)
        return self._objects(positions, logprobs.chosen_ranks)

    def prompt(self, piece: PromptLogprobs) -> list[bytes]:
        """One object for each prompt position, null for the one that has no logprobs."""
        absent, positions = prompt_positions(piece, self._shown)
        return [b"null"] * absent + self._objects(positions, piece.chosen_ranks)

    def _objects(self, positions: Positions, chosen_ranks: list[int]) -> list[bytes]:
        width = positions.width
        objects: list[bytes] = []
        for entry, token_id in enumerate(positions.token_ids):
            parts = [self._member(token_id, positions.values[entry], positions.ranks[entry])]
            for place in range(entry * width, (entry + 1) * width):
                if positions.ids[place] != token_id:
                    rank = chosen_ranks[place] if self._shown.chosen else place - entry * width + 1
                    parts.append(self._member(positions.ids[place], positions.numbers[place], rank))
            objects.append(b"{" + b",".join(parts) + b"}")
        return objects

    def _member(self, token_id: int, value: bytes, rank: int) -> bytes:
        return b'"%d":{"logprob":%b,"rank":%b,"decoded_token":%b}' % (
            token_id,
            value,
            b"%d" % rank if rank else b"null",
            b"null" if self._vocabulary is None else self._vocabulary.display(token_id),
        )
