"""`POST /generate` in SGLang's shape."""

from fastapi import APIRouter, Request, Response

from engines.errors import UnsupportedFeature
from processors.dialects.foreign_logprobs import LogprobFormat
from processors.dialects.sglang_generate import GenerateAnswer, GenerateOptions, GenerateRenderer
from processors.request import PreparedRequest
from routers.body import ignored_header, parse, read_json
from routers.generation import answer, body_schema
from routers.schemas.generate import GenerateRequest
from routers.service import Service, ServiceDep, request_id_of

router = APIRouter(tags=["sglang"])


@router.post("/generate", openapi_extra=body_schema(GenerateRequest))
@router.put("/generate", include_in_schema=False)
async def generate(request: Request, service: ServiceDep) -> Response:
    """Continue texts or lists of token ids; a list of prompts is answered by a list."""
    body = parse(GenerateRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    prepared, rids = await prepare(body, service, request_id_of(request))
    renderer = GenerateRenderer(
        [
            GenerateAnswer(rid, service.gateway.vocabulary, answer_options(body, service, each))
            for rid, each in zip(rids, prepared, strict=True)
        ],
        listed=body.batched or len(prepared) > 1,
    )
    return answer(service, prepared, renderer, ignored_header(ignored))


async def prepare(body: GenerateRequest, service: Service, request_id: str) -> tuple[list[PreparedRequest], list[str]]:
    """The sequences in the order prompt x n + sample, and the client's id of each."""
    prompts = body.read_prompts()
    samplings = body.samplings(len(prompts))
    samples = samplings[0].n
    wishes = body.logprobs(len(prompts), service.options.logprobs_mode)
    rids = body.rids(len(prompts), samples, request_id)
    common = {request_id} | ({body.rid} if isinstance(body.rid, str) else set())
    prepared: list[PreparedRequest] = []
    for place, prompt in enumerate(prompts):
        names = tuple(common | set(rids[place * samples : (place + 1) * samples]))
        generation = body.generation(samplings[place], wishes[place], names)
        prepared += await service.gateway.input.prepare_all(generation, [prompt], samples)
    return prepared, rids


def answer_options(body: GenerateRequest, service: Service, prepared: PreparedRequest) -> GenerateOptions:
    """What one sequence's answer shall hold. UnsupportedFeature for texts in raw-token mode."""
    texts = body.return_text_in_logprobs or body.logprob_format is LogprobFormat.OPENAI
    if texts and service.gateway.vocabulary is None:
        raise UnsupportedFeature("The server runs without a tokenizer: logprobs have no texts.", param="logprob_format")
    return GenerateOptions(
        logprobs=prepared.engine_request.logprobs,
        logprob_format=body.logprob_format or LogprobFormat.SGLANG,
        with_text=body.return_text_in_logprobs,
        incremental=service.options.incremental if body.incremental is None else body.incremental,
        hidden_states=body.return_hidden_states,
        arrival=prepared.arrival,
    )
