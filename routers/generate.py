"""`POST /generate` in SGLang's shape."""

import msgspec
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
    bases = body.rids(len(prompts), request_id)
    common = {request_id} | ({body.rid} if isinstance(body.rid, str) else set())
    prepared: list[PreparedRequest] = []
    rids: list[str] = []
    for place, prompt in enumerate(prompts):
        generation = body.generation(samplings[place], wishes[place])
        for number, sequence in enumerate(await service.gateway.input.prepare_all(generation, [prompt], samples)):
            rid = bases[place] if samples == 1 else f"{bases[place]}_{number}"
            names = tuple(common | {bases[place], rid})
            prepared.append(msgspec.structs.replace(sequence, names=names))
            rids.append(rid)
    return prepared, rids


def answer_options(body: GenerateRequest, service: Service, prepared: PreparedRequest) -> GenerateOptions:
    """What one sequence's answer shall hold. UnsupportedFeature for texts in raw-token mode."""
    texts = body.return_text_in_logprobs or body.logprob_format is LogprobFormat.OPENAI
    if texts and service.gateway.vocabulary is None:
        field = "return_text_in_logprobs" if body.return_text_in_logprobs else "logprob_format"
        raise UnsupportedFeature("The server runs without a tokenizer: logprobs have no texts.", param=field)
    return GenerateOptions(
        logprobs=prepared.engine_request.logprobs,
        logprob_format=body.logprob_format or LogprobFormat.SGLANG,
        with_text=body.return_text_in_logprobs,
        incremental=service.options.incremental if body.incremental is None else body.incremental,
        hidden_states=body.return_hidden_states,
        arrival=prepared.arrival,
    )
