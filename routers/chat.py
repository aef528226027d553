"""`POST /v1/chat/completions`."""

from fastapi import APIRouter, Request, Response

from processors.dialects.openai_chat import ChatRenderer
from routers.body import ignored_header, parse, read_json
from routers.generation import answer, body_schema, prompt_view
from routers.schemas.chat import ChatCompletionRequest
from routers.service import ServiceDep

router = APIRouter(tags=["openai"])


@router.post("/v1/chat/completions", openapi_extra=body_schema(ChatCompletionRequest))
async def create_chat_completion(request: Request, service: ServiceDep) -> Response:
    """Answer a conversation."""
    body = parse(ChatCompletionRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    model = service.check_model(body.model)
    logprobs = body.logprob_params(service.options.logprobs_mode)
    prepared = await service.gateway.input.prepare(body.generation(body.read_prompt(), logprobs))
    renderer = ChatRenderer(
        service.head(f"chatcmpl-{prepared.engine_request.id}", model),
        service.gateway.tokenizer.vocabulary,
        body.answer_options(logprobs),
        prompt_view(service, prepared, with_text=False),
        role="assistant",
    )
    return answer(service, [prepared], renderer, ignored_header(ignored))
