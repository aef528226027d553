"""The request of `/v1/completions`."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from engines.errors import InvalidValue, UnsupportedFeature
from engines.protocol import LogprobParams, LogprobsMode
from processors.request import TextPrompt, TokenPrompt
from routers.schemas.openai import OpenAIRequest

_DEFAULT_MAX_TOKENS = 16


class CompletionRequest(OpenAIRequest):
    """OpenAI's fields with vLLM's extensions."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = OpenAIRequest.UNSUPPORTED | {
        "best_of": (1,),
        "suffix": ("",),
        "prompt_embeds": (),
    }

    prompt: Any = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0)] | None = None
    add_special_tokens: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """OpenAI's default for completions is 16."""
        return _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    def read_prompt(self) -> TextPrompt | TokenPrompt:
        """The prompt: a text or a list of token ids, also as the one member of a batch.

        InvalidValue for other shapes and an empty prompt, UnsupportedFeature for batches.
        """
        value = self.prompt
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            if len(value) > 1:
                raise UnsupportedFeature("Batches of prompts are not supported yet.", param="prompt")
            value = value[0]
        if value in ("", [], None):
            raise InvalidValue("The prompt must not be empty.", param="prompt")
        if isinstance(value, str):
            return TextPrompt(value, add_special_tokens=self.add_special_tokens is not False)
        if isinstance(value, list) and all(type(token_id) is int for token_id in value):
            return TokenPrompt(value)
        raise InvalidValue("The prompt must be a text or a list of token ids.", param="prompt")

    def logprob_params(self, default_mode: LogprobsMode) -> LogprobParams | None:
        """Which logprobs are wanted. UnsupportedFeature for those of the prompt."""
        if self.logprobs is None:
            return None
        if self.echo:
            raise UnsupportedFeature("echo with logprobs is not supported yet.", param="echo")
        return LogprobParams(top_k=self.logprobs, mode=self.mode(default_mode))
