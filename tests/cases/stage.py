"""Where cases are played: the whole app over HTTP, and an engine that says what the case needs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from app.settings import Settings
from engines.protocol import EngineRequest
from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script
from processors.vocabulary import byte_alphabet
from tests.client import EventStream
from tests.serving import LiveServer, serve

CONTEXT = 8192


class Stage:
    """A scripted engine with a real model's tokenizer; `say` decides what requests receive from now on.

    `engine` is that of the server that runs now; `scratch` is an empty folder. The served model's name is "m".
    """

    def __init__(self, model_dir: Path, scratch: Path, *, eos: str = "<|im_end|>", context: int = CONTEXT) -> None:
        self.model_dir = model_dir
        self.scratch = scratch
        self.tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self.eos = self.id_of(eos)
        self._context = context
        self._script = Script()

    def say(self, script: Script) -> None:
        """Give this script to every request that comes."""
        self._script = script

    def serve(self, *, stepped: bool = False, **settings: Any) -> AbstractAsyncContextManager[LiveServer]:
        """Serve; the engine goes as fast as it can or, if `stepped`, when the test calls `engine.step`."""
        self.say(self.script("Hello there, world."))
        options = ScriptedOptions(
            model="m",
            tokenizer=str(self.model_dir),
            max_model_len=self._context,
            vocab_size=self.tokenizer.get_vocab_size(),
            eos_token_ids=(self.eos,),
            step_ms=None if stepped else 0,
        )
        self.engine = ScriptedEngine(options, script_for=self._script_for)
        return serve(Settings(served_model_name="m", **settings), self.engine)

    def _script_for(self, request: EngineRequest) -> Script:
        return self._script

    @contextlib.asynccontextmanager
    async def open_stream(self, live: LiveServer, path: str, body: dict[str, Any]) -> AsyncIterator[EventStream]:
        """A stream of a stepped engine, which steps once: the answer begins with the first event."""
        count = len(live.engine.submitted) + 1

        async def first_step() -> None:
            await live.engine.until_submitted(count)
            self.engine.step()

        stepping = asyncio.create_task(first_step())
        try:
            async with live.client.stream(path, body) as stream:
                await stepping
                yield stream
        finally:
            stepping.cancel()

    def script(self, text: str, **more: Any) -> Script:
        """Say a text and end."""
        return Script(token_ids=[*self.ids(text), self.eos], **more)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without any special ones."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def id_of(self, piece: str) -> int:
        """The id of a piece of the vocabulary."""
        token_id = self.tokenizer.token_to_id(piece)
        assert token_id is not None, piece
        return token_id

    @cached_property
    def _pieces(self) -> dict[int, str]:
        return {token_id: piece for piece, token_id in self.tokenizer.get_vocab(with_added_tokens=True).items()}

    def bytes_of(self, token_id: int) -> bytes:
        """A byte-level token's own bytes."""
        return bytes(byte_alphabet()[character] for character in self._pieces[token_id])

    def lone_bytes(self, *values: int) -> list[int]:
        """The ids of the byte-level tokens that are one byte each."""
        characters = {value: character for character, value in byte_alphabet().items()}
        return [self.id_of(characters[value]) for value in values]
