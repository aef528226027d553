"""The request of `/v1/completions`."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from engines.errors import InvalidValue
from engines.protocol import LogprobParams
from processors.dialects.openai import OpenAIOptions
from processors.request import Prompt, TextPrompt, TokenPrompt
from routers.schemas.openai import MOST_SAMPLES, OpenAIRequest

_DEFAULT_MAX_TOKENS = 16
_MOST_SEQUENCES = 1024


class CompletionRequest(OpenAIRequest):
    """OpenAI's fields with vLLM's extensions."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = OpenAIRequest.UNSUPPORTED | {
        "suffix": ("",),
        "prompt_embeds": (),
    }

    prompt: Any = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=-1)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    add_special_tokens: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """OpenAI's default for completions is 16."""
        return _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def samples(self) -> int:
        """best_of, of which the n likeliest are shown, or n."""
        return max(self.best_of or 1, self.n or 1)

    def shown_logprobs(self) -> int | None:
        """`logprobs` itself: 0 shows the token's own."""
        return self.logprobs

    def check(self) -> None:
        """InvalidValue for fields that contradict each other."""
        if self.max_tokens == 0 and not self.echo:
            raise InvalidValue("max_tokens must be at least 1 without echo.", param="max_tokens")
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise InvalidValue("best_of must not be smaller than n.", param="best_of")
        if self.best_of is not None and self.best_of > (self.n or 1) and self.stream:
            raise InvalidValue("best_of can't be streamed: the best is known at the end.", param="best_of")

    def read_prompts(self) -> list[Prompt]:
        """The prompts: a text, a list of token ids, or a list of texts or of lists of token ids.

        InvalidValue for other shapes, an empty prompt, or more sequences than one request may have.
        """
        value = self.prompt
        batch = value if isinstance(value, list) and value and isinstance(value[0], str | list) else [value]
        if len(batch) * self.samples > _MOST_SEQUENCES:
            raise InvalidValue(
                f"{len(batch)} prompts with {self.samples} samples each are more than {_MOST_SEQUENCES} sequences.",
                param="prompt" if len(batch) > 1 else "n",
            )
        return [self._read_prompt(prompt) for prompt in batch]

    def _read_prompt(self, value: Any) -> Prompt:
        if value in ("", [], None):
            raise InvalidValue("The prompt must not be empty.", param="prompt")
        if isinstance(value, str):
            return TextPrompt(value, add_special_tokens=self.add_special_tokens is not False)
        if isinstance(value, list) and all(type(token_id) is int for token_id in value):
            return TokenPrompt(value)
        raise InvalidValue("A prompt must be a text or a list of token ids.", param="prompt")

    def wishes(self, options: OpenAIOptions) -> LogprobParams | None:
        """Which logprobs the engine is asked for: those of the prompt if it is echoed with them, or by their field."""
        wants_prompt = (self.echo and options.logprobs is not None) or options.prompt_logprobs is not None
        ranked = options.samples > options.shown_samples
        return options.wishes(prompt_start=0 if wants_prompt else None, ranked=ranked)
