"""The requests of `/tokenize` and `/detokenize`, in vLLM's shapes."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from routers.schemas.chat import ChatMessage


class TokenizeRequest(BaseModel):
    """A text, or a conversation for the chat template: one of the two."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(BaseModel):
    """Token ids to decode, special tokens shown."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    tokens: list[int]
