"""Where a script is cut for a request: the rules by which any engine ends a sequence."""

from collections.abc import Iterable
from typing import NamedTuple

from engines.protocol import EngineRequest, Finish, FinishKind
from engines.scripted.script import Script


class Ending(NamedTuple):
    """All tokens that a request will get, and how they end."""

    token_ids: list[int]
    finish: Finish


def ending_of(script: Script, request: EngineRequest, eos_token_ids: Iterable[int], max_model_len: int) -> Ending:
    """Cut a script by max_tokens, context, end-of-sequence ids and stop ids.

    A stop token is part of the output, and ends it only if min_tokens came before it. Where one that ends the output
    is both, it counts as the end of sequence. A finish that the script dictates holds if all of its tokens are sent.
    """
    sampling = request.sampling
    room = max(0, min(sampling.max_tokens, max_model_len - len(request.prompt_token_ids)))
    token_ids = _first_tokens(script, room)
    used_up = not script.cycle and len(token_ids) == len(script.token_ids)
    eos = frozenset() if sampling.ignore_eos else frozenset(eos_token_ids)
    stops = eos.union(sampling.stop_token_ids)
    if not stops.isdisjoint(token_ids):
        for place in range(sampling.min_tokens, len(token_ids)):
            token_id = token_ids[place]
            if token_id in stops:
                if used_up and script.finish is not None and place == len(token_ids) - 1:
                    break
                return Ending(
                    token_ids[: place + 1], Finish(FinishKind.STOP, matched=None if token_id in eos else token_id)
                )
    if used_up and script.finish is not None:
        return Ending(token_ids, script.finish)
    return Ending(token_ids, Finish(FinishKind.LENGTH if len(token_ids) == room else FinishKind.STOP))


def _first_tokens(script: Script, count: int) -> list[int]:
    if script.cycle and len(script.token_ids) < count:
        return (script.token_ids * -(-count // len(script.token_ids)))[:count]
    return script.token_ids[:count]
