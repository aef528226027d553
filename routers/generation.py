"""What the generation routes share: from checked requests to their answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from processors.dialects.renderer import PromptView, Renderer
from processors.echo import visible_lengths
from processors.gateway import detokenizer_of
from processors.request import PreparedRequest
from routers.answer import WholeAnswer, off_loop_if
from routers.service import Service
from routers.stream import EventStream

_INLINE_TOKENS = 2000


def answer(
    service: Service, requests: Sequence[PreparedRequest], renderer: Renderer, headers: Mapping[str, str]
) -> Response:
    """The response that runs the requests: events if they are streamed, else one body."""
    if requests[0].stream:
        return EventStream(service.gateway, requests, renderer, service.options, headers)
    return WholeAnswer(service.gateway, requests, renderer, headers)


async def prompt_view(service: Service, prepared: PreparedRequest, *, text: bool, lengths: bool = False) -> PromptView:
    """The prompt as answers show it, with its text and the places of its tokens if they are needed.

    The text is the given one, or of token ids their decode with special tokens.
    """
    token_ids = prepared.engine_request.prompt_token_ids
    if not text:
        return PromptView("", token_ids)
    tokenizer = service.gateway.tokenizer

    def view(given: str | None) -> PromptView:
        shown = tokenizer.decode(token_ids) if given is None else given
        if not lengths:
            return PromptView(shown, token_ids)
        detokenizer = detokenizer_of(tokenizer, skip_special=False)
        return PromptView(
            shown, token_ids, visible_lengths(shown, token_ids, detokenizer, tokenizer.vocabulary.special)
        )

    return await off_loop_if(len(token_ids) > _INLINE_TOKENS, view, prepared.prompt_text)


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry of a body that is parsed by hand."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    for name, definition in definitions.items():
        schema = _inline(schema, f"#/components/schemas/{name}", definition)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inline(node: Any, reference: str, definition: Any) -> Any:
    if isinstance(node, dict):
        if node.get("$ref") == reference:
            return definition
        return {key: _inline(value, reference, definition) for key, value in node.items()}
    if isinstance(node, list):
        return [_inline(value, reference, definition) for value in node]
    return node
