"""How a client joins what further dialects add to a choice, and what these must hold by the tokens they describe."""

from collections.abc import Sequence
from typing import Any

from processors.dialects.foreign_logprobs import LogprobFormat
from processors.dialects.numbers import FLOOR
from processors.dialects.openai import OpenAIOptions
from processors.limits import WHOLE_VOCABULARY
from tests.processors.answers import Token
from tests.processors.dialects.vocabularies import VOCABULARY


def join_completions(chunks: list[Any]) -> dict[int, dict[str, Any]]:
    """Each choice as a client joins it: texts and lists are appended, the last reason counts."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (part,) = chunk["choices"]
        choice = choices.setdefault(part["index"], {"index": part["index"], "text": "", "logprobs": None})
        choice["text"] += part["text"]
        if part["logprobs"] is not None:
            columns = choice["logprobs"] = choice["logprobs"] or {name: [] for name in part["logprobs"]}
            for name, column in part["logprobs"].items():
                columns[name] += column
        extend_choice(choice, part)
        if "prompt_token_ids" in part:
            assert "prompt_token_ids" not in choice
            choice["prompt_token_ids"] = part["prompt_token_ids"]
        choice |= {"finish_reason": part["finish_reason"], "stop_reason": part["stop_reason"]}
    return choices


def join_chats(chunks: list[Any]) -> dict[int, dict[str, Any]]:
    """Each choice of a chat as a client joins it."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (part,) = chunk["choices"]
        delta = part["delta"]
        choice = choices.setdefault(part["index"], {"index": part["index"], "logprobs": None})
        message = choice.setdefault("message", {"role": delta.get("role"), "content": "", "refusal": None})
        message["content"] += delta["content"]
        if part["logprobs"] is not None:
            assert part["logprobs"]["refusal"] is None
            joined = choice["logprobs"] or {"content": [], "refusal": None}
            choice["logprobs"] = joined | {"content": joined["content"] + part["logprobs"]["content"]}
        extend_choice(choice, part)
        choice["finish_reason"] = part["finish_reason"]
        if part["finish_reason"] is not None:
            choice["stop_reason"] = part["stop_reason"]
    return choices


def extend_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    """Lists are appended, the running total's latest value counts."""
    for name in ("token_ids", "prompt_logprobs", "output_logprobs"):
        if name in part:
            choice[name] = choice.get(name, []) + part[name]
    if "cumulative_logprob" in part:
        choice["cumulative_logprob"] = part["cumulative_logprob"]
    if "meta_info" in part:
        columns = choice.setdefault("meta_info", {name: [] for name in part["meta_info"]})
        for name, column in part["meta_info"].items():
            columns[name] = columns[name] + column


def shown(value: float) -> float:
    """A value as it is written."""
    return max(value, FLOOR)


def best(token: Token, top_k: int) -> list[tuple[int, float]]:
    """The alternatives that a request for so many is shown, of those that the engine sent."""
    return token.alternatives if top_k == WHOLE_VOCABULARY else token.alternatives[:top_k]


def text(token_id: int) -> str:
    """A token as lists of logprobs name it."""
    return VOCABULARY.bytes_of[token_id].decode(errors="replace")


def ranked_object(token: Token, top_k: int, chosen: Sequence[int] = ()) -> dict[str, Any]:
    """vLLM's object of one position: the token itself, then the k best or the chosen ids."""

    def member(token_id: int, value: float, rank: int) -> dict[str, Any]:
        return {str(token_id): {"logprob": shown(value), "rank": rank or None, "decoded_token": text(token_id)}}

    others = [(token_id, value, place) for place, (token_id, value) in enumerate(best(token, top_k), start=1)]
    if chosen:
        others = [(token_id, value, rank) for token_id, (value, rank) in zip(chosen, token.chosen, strict=True)]
    entry = member(token.id, token.value, token.rank)
    for token_id, value, rank in others:
        if token_id != token.id:
            entry |= member(token_id, value, rank)
    return entry


def ranked_prompt(tokens: Sequence[Token], top_k: int) -> list[Any]:
    """vLLM's `prompt_logprobs`."""
    return [None, *(ranked_object(token, top_k) for token in tokens[1:])]


def tuple_of(token_id: int, value: float | None) -> list[Any]:
    """SGLang's tuple."""
    return [None if value is None else shown(value), token_id, text(token_id)]


def tuple_columns(side: str, tokens: Sequence[Token], options: OpenAIOptions, *, prompt: bool) -> dict[str, Any]:
    """SGLang's columns of one side."""
    rows = tokens[1:] if prompt else tokens
    nulls = [None] * (len(tokens) - len(rows))
    top_k = 0 if options.chosen else options.logprobs or 0
    tops = [[tuple_of(*pair) for pair in best(token, top_k)] for token in rows]
    columns = {
        f"{side}_token_logprobs": [
            *(tuple_of(token.id, None) for token in tokens[: len(nulls)]),
            *(tuple_of(token.id, token.value) for token in rows),
        ],
        f"{side}_top_logprobs": nulls + tops if top_k else [],
    }
    if options.chosen:
        columns[f"{side}_token_ids_logprobs"] = nulls + [
            [tuple_of(token_id, value) for token_id, (value, _) in zip(options.chosen, token.chosen, strict=True)]
            for token in rows
        ]
    return columns


def foreign_members(options: OpenAIOptions, prompt: Sequence[Token], tokens: Sequence[Token]) -> dict[str, Any]:
    """All that `logprob_format` adds to a whole choice; `prompt` is empty unless its logprobs were asked for."""
    members: dict[str, Any] = {}
    if options.logprobs is None:
        return members
    if options.logprob_format in {LogprobFormat.VLLM, LogprobFormat.BOTH}:
        top_k = options.logprobs
        members["output_logprobs"] = [ranked_object(token, top_k, options.chosen) for token in tokens]
        members["cumulative_logprob"] = 0.0
        for token in tokens:
            members["cumulative_logprob"] += shown(token.value)
    if options.logprob_format in {LogprobFormat.SGLANG, LogprobFormat.BOTH}:
        columns = tuple_columns("input", prompt, options, prompt=True)
        members["meta_info"] = columns | tuple_columns("output", tokens, options, prompt=False)
    return members
