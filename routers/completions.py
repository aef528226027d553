"""`POST /v1/completions`."""

from fastapi import APIRouter, Request, Response

from processors.dialects.openai_completions import CompletionsRenderer
from routers.body import ignored_header, parse, read_json
from routers.generation import answer, body_schema, prompt_view
from routers.schemas.completions import CompletionRequest
from routers.service import ServiceDep, request_id_of

router = APIRouter(tags=["openai"])


@router.post("/v1/completions", openapi_extra=body_schema(CompletionRequest))
async def create_completion(request: Request, service: ServiceDep) -> Response:
    """Continue texts or lists of token ids."""
    body = parse(CompletionRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    body.check()
    model = service.check_model(body.model)
    vocabulary = service.gateway.tokenizer.vocabulary
    options = body.answer_options(service.options.logprobs_mode)
    generation = body.generation(body.wishes(options), request_id_of(request))
    prepared = await service.gateway.input.prepare_all(generation, body.read_prompts(), options.samples)
    echo = bool(body.echo)
    scored = echo and options.logprobs is not None
    prompts = [await prompt_view(service, each, text=echo, lengths=scored) for each in prepared[:: options.samples]]
    head = service.head(f"cmpl-{prepared[0].engine_request.id}", model)
    renderer = CompletionsRenderer(head, vocabulary, options, prompts, echo=echo)
    return answer(service, prepared, renderer, ignored_header(ignored))
