"""`POST /v1/completions`."""

from fastapi import APIRouter, Request, Response

from processors.dialects.openai_completions import CompletionsRenderer
from routers.body import ignored_header, parse, read_json
from routers.generation import answer, body_schema, prompt_view
from routers.schemas.completions import CompletionRequest
from routers.service import ServiceDep

router = APIRouter(tags=["openai"])


@router.post("/v1/completions", openapi_extra=body_schema(CompletionRequest))
async def create_completion(request: Request, service: ServiceDep) -> Response:
    """Continue a text or a list of token ids."""
    body = parse(CompletionRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    model = service.check_model(body.model)
    logprobs = body.logprob_params(service.options.logprobs_mode)
    prepared = await service.gateway.input.prepare(body.generation(body.read_prompt(), logprobs))
    renderer = CompletionsRenderer(
        service.head(f"cmpl-{prepared.engine_request.id}", model),
        service.gateway.tokenizer.vocabulary,
        body.answer_options(logprobs),
        [prompt_view(service, prepared, with_text=bool(body.echo))],
        echo=bool(body.echo),
    )
    return answer(service, [prepared], renderer, ignored_header(ignored))
