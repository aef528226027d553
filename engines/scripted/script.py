"""What one request receives from the scripted engine, written down beforehand."""

from pathlib import Path
from typing import Any

import msgspec

from engines.protocol import Finish
from engines.scripted.faults import Fault
from engines.scripted.values import Values, ZipfValues


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The output of one sequence, and how it arrives.

    token_ids: all that the "model" would say; with `cycle` over and over. The engine cuts it where the request says
        (max_tokens, stop ids, end of sequence), as engines do.
    grouping: tokens per frame, begun again when used up; one each where empty. 0 is a row without tokens.
    finish: how it ends when the tokens are used up; None is LENGTH if max_tokens is reached with them, else STOP.
    finish_apart: the finish comes in a row of its own, without tokens, after the last token's row.
    values: where logprobs of output and prompt come from.
    cached_tokens: prompt tokens said to come from a cache.
    texts: one per token; the rows then go into BatchStrOut frames.
    embedding: the only row is a vector in a BatchEmbeddingOut frame; the tokens are not used.
    hidden_states, multi_ids: one list per token; hidden states are sent if the request wants them.
    extra_info: by token index; the row that carries the token carries it, of several the last.
    speculative: rows count accepted draft tokens and verify steps: each row with tokens is one step, and all of its
        tokens but one are accepted drafts.
    faults: what goes wrong, see `engines.scripted.faults`.
    frames_after_abort: rows that still come after an abort; None: the abort is not obeyed at all.
    """

    token_ids: list[int] = []
    cycle: bool = False
    grouping: list[int] = []
    finish: Finish | None = None
    finish_apart: bool = False
    values: Values = ZipfValues()
    cached_tokens: int = 0
    texts: list[str] | None = None
    embedding: list[float] | None = None
    hidden_states: list[list[float]] = []
    multi_ids: list[list[int]] = []
    extra_info: dict[int, dict[str, Any]] = {}
    speculative: bool = False
    faults: list[Fault] = []
    frames_after_abort: int | None = 0

    def __post_init__(self) -> None:
        if self.cycle and not self.token_ids:
            raise ValueError("a script without tokens can't be cycled")
        if self.grouping and (min(self.grouping) < 0 or max(self.grouping) == 0):
            raise ValueError("a grouping needs counts from 0 up, one of them above 0")
        if self.texts is not None and len(self.texts) != len(self.token_ids):
            raise ValueError("a script needs one text per token")


def load_scripts(path: Path) -> list[Script]:
    """Read a JSON file that holds a list of scripts. ValueError names what is wrong with it."""
    try:
        scripts = msgspec.json.decode(path.read_bytes(), type=list[Script])
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from error
    if not scripts:
        raise ValueError(f"{path}: holds no script")
    return scripts
