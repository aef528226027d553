"""The request of `/v1/chat/completions`."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from engines.errors import InvalidValue, UnsupportedFeature
from engines.protocol import LogprobParams
from processors.dialects.openai import OpenAIOptions
from processors.request import ChatPrompt
from routers.schemas.openai import OpenAIRequest

# Arguments of the tokenizer's own call; a template given by a client would be code of theirs.
_TEMPLATE_ARGUMENTS = frozenset({
    "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask", "tokenizer_kwargs",
})  # fmt: skip


ROLE = "assistant"
"""Who answers."""


class ChatMessage(BaseModel):
    """One message. Content is a text or a list of text parts; other members go to the template as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Any = None

    def template_message(self, place: int) -> dict[str, Any]:
        """The message as the chat template sees it. Text parts are joined by line feeds, as vLLM does."""
        param = f"messages.{place}.content"
        extra = self.model_extra or {}
        if extra.get("tool_calls") or self.role == "tool":
            raise UnsupportedFeature("Tool messages are not supported yet.", param=f"messages.{place}")
        content = self.content
        if isinstance(content, list):
            texts = []
            for part in content:
                if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                    raise InvalidValue("A content part must be an object with a type.", param=param)
                if part["type"] not in {"text", "input_text"}:
                    raise UnsupportedFeature("Only text parts are supported.", param=param)
                if not isinstance(part.get("text"), str):
                    raise InvalidValue("A text part needs a text.", param=param)
                texts.append(part["text"])
            content = "\n".join(texts)
        if content is None and self.role == ROLE:
            content = ""
        if not isinstance(content, str):
            raise InvalidValue("The content must be a text or a list of text parts.", param=param)
        return {"role": self.role, "content": content} | extra


class ChatCompletionRequest(OpenAIRequest):
    """OpenAI's fields with vLLM's extensions."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = OpenAIRequest.UNSUPPORTED | {
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "documents": ([],),
        "chat_template": (),
        "mm_processor_kwargs": (),
        "add_special_tokens": (False,),
        "web_search_options": (),
    }
    INFORMATIVE: ClassVar[frozenset[str]] = OpenAIRequest.INFORMATIVE | {
        "parallel_tool_calls", "reasoning_effort", "verbosity", "include_reasoning",
    }  # fmt: skip

    LOGPROBS_FIELD: ClassVar[str] = "top_logprobs"

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=-1)] | None = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def token_limit(self) -> int | None:
        """max_completion_tokens, or its older name; the rest of the context without either."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def limit_field(self) -> str:
        """Name of the field that token_limit comes from."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    def read_prompt(self) -> ChatPrompt:
        """The conversation for the chat template. InvalidValue if it shall both go on and begin anew."""
        if self.continue_final_message and self.add_generation_prompt is not False:
            raise InvalidValue(
                "continue_final_message needs add_generation_prompt to be false.", param="continue_final_message"
            )
        kwargs = self.chat_template_kwargs or {}
        if taken := _TEMPLATE_ARGUMENTS & kwargs.keys():
            raise InvalidValue(f"{min(taken)} is no variable of a template.", param="chat_template_kwargs")
        return ChatPrompt(
            messages=[message.template_message(place) for place, message in enumerate(self.messages)],
            add_generation_prompt=self.add_generation_prompt is not False,
            continue_final_message=bool(self.continue_final_message),
            template_kwargs=kwargs,
        )

    @property
    def echoed_text(self) -> str:
        """With echo the last message leads the answer, if the assistant said it (vLLM's rule)."""
        last = self.messages[-1]
        if not self.echo or last.role != ROLE:
            return ""
        content: str = last.template_message(len(self.messages) - 1)["content"]
        return content

    def shown_prompt_logprobs(self) -> int | None:
        """prompt_logprobs itself; echo asks for as many as for the answer's tokens."""
        if self.echo and self.prompt_logprobs is None:
            return self.shown_logprobs() or 0
        return self.prompt_logprobs

    def shown_logprobs(self) -> int | None:
        """top_logprobs, if there are logprobs at all. InvalidValue for top_logprobs without logprobs."""
        if not self.logprobs:
            if self.top_logprobs:
                raise InvalidValue("top_logprobs needs logprobs to be true.", param="top_logprobs")
            return None
        return self.top_logprobs or 0

    def wishes(self, options: OpenAIOptions) -> LogprobParams | None:
        """Which logprobs the engine is asked for."""
        return options.wishes(prompt_start=None if options.prompt_logprobs is None else 0, ranked=False)
