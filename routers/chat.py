"""`POST /v1/chat/completions`."""

from fastapi import APIRouter, Request, Response

from processors.dialects.openai_chat import ChatRenderer
from routers.body import ignored_header, parse, read_json
from routers.generation import answer, body_schema, prompt_view
from routers.schemas.chat import ROLE, ChatCompletionRequest
from routers.service import ServiceDep, request_id_of

router = APIRouter(tags=["openai"])


@router.post("/v1/chat/completions", openapi_extra=body_schema(ChatCompletionRequest))
async def create_chat_completion(request: Request, service: ServiceDep) -> Response:
    """Answer a conversation."""
    body = parse(ChatCompletionRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    model = service.check_model(body.model)
    vocabulary = service.gateway.tokenizer.vocabulary
    options = body.answer_options(service.options.logprobs_mode)
    generation = body.generation(body.wishes(options), request_id_of(request))
    prepared = await service.gateway.input.prepare_all(generation, [body.read_prompt()], options.samples)
    head = service.head(f"chatcmpl-{prepared[0].engine_request.id}", model)
    prompt = await prompt_view(service, prepared[0], text=False)
    renderer = ChatRenderer(head, vocabulary, options, prompt, role=ROLE, echo=body.echoed_text)
    return answer(service, prepared, renderer, ignored_header(ignored))
