"""A scripted engine that says what a recording says."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engines.protocol import EngineRequest
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script
from engines.scripted.values import ListedValues
from tests.golden_answers import Golden, load
from tests.wire import ChatChoice, CompletionChoice

CONTEXT = 2048
END = "<|im_end|>"
SAME_TOKENS = {"cmpl_emoji_lp1_stream": "cmpl_emoji_ids_full", "cmpl_echo_nolp_full": "cmpl_echo_lp1_full"}
"""Recordings that do not name all of their tokens, and others of the same answer that do."""
Position = dict[int, float]
SOME_VALUE: Position = {0: -1.0}
"""Stands where a recording tells no value and none is compared."""


class GoldenPlayer:
    """`engine` gives each request, in order, what a choice of the rehearsed recording holds, over and over."""

    def __init__(self, model_dir: Path, model: str) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._scripts: list[Script] = []
        options = ScriptedOptions(
            model=model,
            tokenizer=str(model_dir),
            max_model_len=CONTEXT,
            vocab_size=self._tokenizer.get_vocab_size(),
            eos_token_ids=(self._id_of(END),),
            step_ms=0,
        )
        self.engine = ScriptedEngine(options, script_for=self._next)

    def _next(self, request: EngineRequest) -> Script:
        return self._scripts.pop(0)

    def rehearse(self, golden: Golden) -> None:
        """Prepare to say what the recording says."""
        told = load()[SAME_TOKENS.get(golden.name, golden.name)]
        self._scripts = [
            self._chat_script(told, choice) if isinstance(choice, ChatChoice) else self._script(told, choice)
            for choice in told.answer.choices
        ]

    def _script(self, golden: Golden, choice: CompletionChoice) -> Script:
        """The script of a completion; under echo its first positions are the prompt's."""
        echoed = self._ids(golden.request["prompt"]) if golden.request.get("echo") else []
        if choice.logprobs is None:
            return Script(token_ids=self._ids(choice.text), cycle=True)
        ids = [self._id_of(token) for token in choice.logprobs.tokens]
        positions = [
            SOME_VALUE if tops is None else {self._id_of(key): value for key, value in tops.items()}
            for tops in choice.logprobs.top_logprobs or []
        ]
        assert ids[: len(echoed)] == echoed
        prompt = positions[: len(echoed)] or _prompt_positions(golden)
        values = ListedValues(positions[len(echoed) :] or [SOME_VALUE], prompt)
        return Script(token_ids=ids[len(echoed) :], cycle=len(ids) > len(echoed), values=values)

    def _chat_script(self, golden: Golden, choice: ChatChoice) -> Script:
        entries = choice.logprobs.content if choice.logprobs is not None else []
        ids = [self._id_of(entry.token) for entry in entries]
        if not entries:
            ids = self._ids(choice.text + (END if choice.finish_reason == "stop" else ""))
        said = [
            {self._id_of(token.token): token.logprob for token in (*entry.top_logprobs, entry)} for entry in entries
        ]
        return Script(token_ids=ids, values=ListedValues(said or [SOME_VALUE], _prompt_positions(golden)))

    def _ids(self, text: Any) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _id_of(self, token: str) -> int:
        """The id of a token as vLLM writes it: a text, or the id itself."""
        if token.startswith("token_id:"):
            return int(token.removeprefix("token_id:"))
        (token_id,) = self._ids(token)
        return token_id


def _prompt_positions(golden: Golden) -> list[Position]:
    """The values of a prompt from vLLM's block for it."""
    return [
        SOME_VALUE if entry is None else {int(key): member["logprob"] for key, member in entry.items()}
        for entry in golden.prompt_logprobs or []
    ]
