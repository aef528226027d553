"""One answer as a list of tokens with all that belongs to them, its deltas in any grouping, and deltas joined."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from engines.protocol import Finish, FinishKind, PromptLogprobs
from processors.delta import Delta, Extras, Logprobs
from tests.processors.strategies import LOGPROBS, NASTY_TEXTS

FINISHES = [
    Finish(FinishKind.STOP),
    Finish(FinishKind.STOP, matched="é\u2028"),
    Finish(FinishKind.STOP, matched=0),
    Finish(FinishKind.LENGTH),
]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token with its text and its logprobs; `alternatives` are (id, value) pairs, `chosen` (value, rank) pairs."""

    id: int
    text: str = ""
    value: float = -1.0
    rank: int = 1
    alternatives: list[tuple[int, float]] = []
    chosen: list[tuple[float, int]] = []
    hidden_state: list[float] = []
    multi_ids: list[int] = []


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and what the wish for logprobs was: alternatives a token, chosen ids; logprobs False is none at all."""

    tokens: list[Token]
    logprobs: bool = True
    top_k: int = 0
    chosen: int = 0
    extras: bool = False
    finish: Finish = FINISHES[0]
    prompt_tokens: int = 3
    cached_tokens: int = 0


@st.composite
def answers(
    draw: st.DrawFn, *, vocabulary: int, max_size: int = 8, top_k: int | None = None, chosen: int | None = None
) -> Answer:
    """Any answer; alternatives are distinct ids, most likely first, with or without the sampled one.

    Values and texts are drawn, and dealt out to the tokens by a seed: a draw for each would be slow.
    """
    k = draw(st.sampled_from([0, 1, 2, 5])) if top_k is None else top_k
    chosen = draw(st.integers(0, 2)) if chosen is None else chosen
    extras = draw(st.booleans())
    values, texts = (
        draw(st.lists(LOGPROBS, min_size=3, max_size=6)),
        draw(st.lists(NASTY_TEXTS, min_size=1, max_size=4)),
    )
    deal = random.Random(draw(st.integers(0, 2**16)))
    tokens = []
    for place in range(draw(st.integers(1, max_size))):
        ids = deal.sample(range(vocabulary), k)
        alternatives = list(zip(ids, sorted((deal.choice(values) for _ in ids), reverse=True), strict=True))
        sampled = deal.choice([*ids, deal.randrange(vocabulary)])
        tokens.append(
            Token(
                id=sampled,
                text=deal.choice(texts),
                value=dict(alternatives).get(sampled, deal.choice(values)),
                rank=deal.randrange(9),
                alternatives=alternatives,
                chosen=[(deal.choice(values), place) for _ in range(chosen)],
                hidden_state=[float(place)] if extras else [],
                multi_ids=[place, 0] if extras else [],
            )
        )
    return Answer(
        tokens=tokens,
        logprobs=draw(st.booleans()),
        top_k=k,
        chosen=chosen,
        extras=extras,
        finish=draw(st.sampled_from(FINISHES)),
        prompt_tokens=draw(st.integers(1, 9)),
        cached_tokens=draw(st.integers(0, 3)),
    )


def logprobs_of(answer: Answer, tokens: Sequence[Token]) -> Logprobs:
    """The columns of a run."""
    return Logprobs(
        values=[token.value for token in tokens],
        ranks=[token.rank for token in tokens],
        top_k=answer.top_k,
        top_ids=[token_id for token in tokens for token_id, _ in token.alternatives],
        top_values=[value for token in tokens for _, value in token.alternatives],
        chosen=answer.chosen,
        chosen_values=[value for token in tokens for value, _ in token.chosen],
        chosen_ranks=[rank for token in tokens for _, rank in token.chosen],
    )


def deltas_of(
    answer: Answer, runs: Sequence[Sequence[Token]], prompt: Sequence[list[PromptLogprobs]] | None = None
) -> list[Delta]:
    """The sequence's deltas, one a run, all lists their own; the last one carries the finish.

    prompt: each run's pieces of the prompt's logprobs, by default one that says which run it is.
    """
    deltas = []
    seen = 0
    for number, run in enumerate(runs, start=1):
        seen += len(run)
        deltas.append(
            Delta(
                text="".join(token.text for token in run),
                token_ids=[token.id for token in run],
                lengths=[len(token.text) for token in run],
                prompt_tokens=answer.prompt_tokens,
                completion_tokens=seen,
                cached_tokens=answer.cached_tokens,
                logprobs=logprobs_of(answer, run) if answer.logprobs and run else None,
                prompt_logprobs=[_mark(number)] if prompt is None else list(prompt[number - 1]),
                finish=answer.finish if number == len(runs) else None,
                extras=_extras_of(run, seen) if answer.extras else None,
            )
        )
    return deltas


def _mark(number: int) -> PromptLogprobs:
    return PromptLogprobs(start=number, token_ids=[number], values=[-1.0], ranks=[1])


def _extras_of(run: Sequence[Token], seen: int) -> Extras:
    return Extras(
        hidden_states=[token.hidden_state for token in run],
        multi_ids=[token.multi_ids for token in run],
        extra_info={"seen": seen} if run else None,
        accepted_draft_tokens=seen,
        verify_steps=seen,
        segment=1,
    )


def joined(deltas: Sequence[Delta]) -> Any:
    """What a reader of all deltas has in the end, joined by the rules of Delta's docstring and not by its methods."""
    logprobs = [delta.logprobs for delta in deltas if delta.logprobs is not None]
    extras = [delta.extras for delta in deltas if delta.extras is not None]
    last = deltas[-1]
    columns = ["values", "ranks", "top_ids", "top_values", "chosen_values", "chosen_ranks"]
    return {
        "text": "".join(delta.text for delta in deltas),
        "ids": [token_id for delta in deltas for token_id in delta.token_ids],
        "lengths": [length for delta in deltas for length in delta.lengths],
        "counts": (last.prompt_tokens, last.completion_tokens, last.cached_tokens),
        "logprobs": {name: [item for part in logprobs for item in getattr(part, name)] for name in columns},
        "widths": {(part.top_k, part.chosen) for part in logprobs},
        "prompt": [piece.start for delta in deltas for piece in delta.prompt_logprobs],
        "finishes": [delta.finish for delta in deltas if delta.finish is not None],
        "hidden": [row for part in extras for row in part.hidden_states],
        "multi": [row for part in extras for row in part.multi_ids],
        "info": [part.extra_info for part in extras if part.extra_info is not None][-1:],
        "state": [(part.accepted_draft_tokens, part.verify_steps, part.segment) for part in extras][-1:],
        "version": last.weight_version,
    }
