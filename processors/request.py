"""A dialect-neutral generation request: what the routers make of a body, and the input processor of it."""

from typing import Any, ClassVar

import msgspec

from engines.protocol import EngineRequest, LogprobParams
from processors.text import TextParams


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Messages for the model's chat template."""

    field: ClassVar[str] = "messages"

    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: dict[str, Any] = {}


class TextPrompt(msgspec.Struct, frozen=True):
    """A text to be tokenized."""

    field: ClassVar[str] = "prompt"

    text: str
    add_special_tokens: bool = True


class TokenPrompt(msgspec.Struct, frozen=True):
    """Ready token ids; never decoded and encoded again."""

    field: ClassVar[str] = "prompt"

    token_ids: list[int]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


class SamplingWishes(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling as asked: engines.protocol.SamplingParams before the context's limit is known.

    max_tokens None is the rest of the context.
    """

    max_tokens: int | None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to be answered once.

    A request for several prompts leaves `prompt` empty until it is prepared for each of them. renamed: what the
    dialect calls fields that it does not call by vLLM's names, for refusals. names: under which the client knows the
    request, for aborts; they need not be unique.
    """

    prompt: Prompt = TokenPrompt([])
    sampling: SamplingWishes
    text: TextParams = TextParams()
    logprobs: LogprobParams | None = None
    renamed: dict[str, str] = {}
    stream: bool = False
    priority: int = 0
    return_hidden_states: bool = False
    names: tuple[str, ...] = ()

    def called(self, field: str) -> str:
        """What the client calls a field."""
        return self.renamed.get(field, field)


class PreparedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request ready for the engine.

    arrival: seconds on the gateway's monotonic clock when the request came in.
    prompt_text: the prompt as given, or None for token ids.
    """

    engine_request: EngineRequest
    text: TextParams
    stream: bool
    arrival: float
    prompt_text: str | None
    names: tuple[str, ...] = ()
