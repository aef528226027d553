"""The requests of `/tokenize` and `/detokenize`, in vLLM's shapes."""

from typing import Annotated

from pydantic import Field

from routers.schemas.chat import ChatMessage
from routers.schemas.ignored import IgnoredFields


class TokenizeRequest(IgnoredFields):
    """A text, or a conversation for the chat template: one of the two."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(IgnoredFields):
    """Token ids to decode, special tokens shown."""

    model: str | None = None
    tokens: list[int]
