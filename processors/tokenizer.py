"""The model's tokenizer and chat template: texts to ids, messages to text, ids to text.

Truncation and padding stay off for good: as arguments they would change the shared tokenizer under other requests.
"""

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from engines.errors import EngineUnavailable, InvalidValue, UnsupportedFeature
from processors.request import ChatPrompt
from processors.vocabulary import Vocabulary

# A text of this many characters is some 500 tokens: about a millisecond on the loop.
_INLINE_CHARACTERS = 2000
_INLINE_MESSAGES = 32

# What a template raises over messages and variables that it was not made for; too deeply nested ones are the last.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)


class TextTokenizer:
    """Owns one tokenizer; safe to use from the loop and from its own threads at once."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, vocabulary: Vocabulary) -> None:
        self._hub_tokenizer = tokenizer
        self.backend: Tokenizer = tokenizer.backend_tokenizer
        self.vocabulary = vocabulary
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")

    @classmethod
    def load(cls, source: str, vocab_size: int | None = None) -> "TextTokenizer":
        """Load from a model directory or a hub name. EngineUnavailable if there is no fast tokenizer."""
        return cls(*_load(source, vocab_size))

    @functools.cached_property
    def chat_template(self) -> str | None:
        """The model's chat template in Jinja, None without one."""
        template = self._hub_tokenizer.chat_template
        return template if isinstance(template, str) else None

    @property
    def class_name(self) -> str:
        """The tokenizer's class in transformers."""
        return type(self._hub_tokenizer).__name__

    @property
    def special_tokens(self) -> dict[str, str]:
        """The special tokens that have a role, as bos_token and eos_token."""
        named: dict[str, Any] = self._hub_tokenizer.special_tokens_map
        return {role: token for role, token in named.items() if isinstance(token, str)}

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; a long one is encoded in a thread.

        encode_batch_fast lets go of the interpreter lock throughout, `encode` does not while it copies ids out.
        """
        if len(text) <= _INLINE_CHARACTERS:
            return self._encode(text, add_special_tokens)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._encode, text, add_special_tokens)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of token ids."""
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    async def render_chat(self, prompt: ChatPrompt) -> str:
        """Text of a conversation by the model's chat template.

        InvalidValue with the template's own words where it refuses the messages.
        """
        if self.chat_template is None:
            raise UnsupportedFeature("The model has no chat template; use /v1/completions.", param="messages")
        if _is_short(prompt):
            return self._render(prompt)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._render, prompt)

    def _render(self, prompt: ChatPrompt) -> str:
        try:
            rendered: Any = self._hub_tokenizer.apply_chat_template(
                prompt.messages,
                tokenize=False,
                add_generation_prompt=prompt.add_generation_prompt,
                continue_final_message=prompt.continue_final_message,
                **prompt.template_kwargs,
            )
        except _TEMPLATE_FAULTS as error:
            raise InvalidValue(f"The chat template refused the messages: {error}", param="messages") from error
        return str(rendered)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_short(prompt: ChatPrompt) -> bool:
    """Whether a conversation is rendered about as fast as a thread takes over: few messages of short texts alone."""
    if len(prompt.messages) > _INLINE_MESSAGES or prompt.template_kwargs:
        return False
    members = [member for message in prompt.messages for member in message.values()]
    return all(isinstance(member, str) for member in members) and sum(map(len, members)) <= _INLINE_CHARACTERS


@functools.lru_cache(maxsize=4)
def _load(source: str, vocab_size: int | None) -> tuple[PreTrainedTokenizerFast, Vocabulary]:
    """Tokenizer and tables; several gateways of one process share them, since nothing changes them after this."""
    if (Path(source) / "tokenizer.json").is_file():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    else:
        # Imports torch: seconds and memory that a ready tokenizer.json does without.
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(source)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise EngineUnavailable(f"The tokenizer of {source} has no fast form.")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer, Vocabulary(tokenizer.backend_tokenizer, vocab_size)
