"""`POST /tokenize` and `POST /detokenize`."""

from typing import Any

from fastapi import APIRouter, Request, Response

from engines.errors import InvalidValue
from processors.request import ChatPrompt
from routers.body import ignored_header, parse, read_json
from routers.generation import body_schema
from routers.schemas.tokenize import DetokenizeRequest, TokenizeRequest
from routers.service import ServiceDep

router = APIRouter(tags=["tokenizer"])


@router.post("/tokenize", openapi_extra=body_schema(TokenizeRequest))
async def tokenize(request: Request, response: Response, service: ServiceDep) -> dict[str, Any]:
    """Token ids of a text or a conversation."""
    body = parse(TokenizeRequest, await read_json(request))
    response.headers.update(ignored_header(body.ignored(strict=service.options.strict)))
    service.check_model(body.model)
    gateway = service.gateway
    if (body.prompt is None) == (body.messages is None):
        raise InvalidValue("Give either prompt or messages.", param="prompt")
    if body.messages is not None:
        messages = [message.template_message(place) for place, message in enumerate(body.messages)]
        chat = ChatPrompt(messages=messages, add_generation_prompt=body.add_generation_prompt)
        text = await gateway.tokenizer.render_chat(chat)
    else:
        text = body.prompt or ""
    # A chat template writes the special tokens itself.
    add_special_tokens = body.messages is None if body.add_special_tokens is None else body.add_special_tokens
    token_ids = await gateway.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    pieces = gateway.tokenizer.backend.id_to_token
    return {
        "count": len(token_ids),
        "max_model_len": gateway.info.max_model_len,
        "tokens": token_ids,
        "token_strs": [pieces(token_id) for token_id in token_ids] if body.return_token_strs else None,
    }


@router.post("/detokenize", openapi_extra=body_schema(DetokenizeRequest))
async def detokenize(request: Request, response: Response, service: ServiceDep) -> dict[str, Any]:
    """Text of token ids."""
    body = parse(DetokenizeRequest, await read_json(request))
    response.headers.update(ignored_header(body.ignored(strict=service.options.strict)))
    service.check_model(body.model)
    service.gateway.input.check_token_ids(body.tokens, "tokens")
    text = service.gateway.tokenizer.decode(body.tokens)
    # vLLM's clients read the one, SGLang's the other.
    return {"prompt": text, "text": text}
