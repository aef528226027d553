"""Health: does the loop answer, does the engine, may new work come."""

from fastapi import APIRouter, Response

from engines.errors import Draining, EngineUnavailable
from processors.request import GenerationRequest, SamplingWishes, TokenPrompt
from routers.service import ServiceDep

router = APIRouter(tags=["health"])


@router.get("/live")
@router.get("/ping")
@router.post("/ping")
async def live() -> Response:
    """200 as long as the process answers."""
    return Response()


@router.get("/ready")
async def ready(service: ServiceDep) -> Response:
    """200 while new work is taken; 503 while the engine is away or the server drains."""
    if service.gateway.draining:
        raise Draining("The server is shutting down.", retry_after=1)
    if not service.gateway.ready:
        raise EngineUnavailable("The engine is not ready.", retry_after=1)
    return Response()


@router.get("/health")
async def health(service: ServiceDep) -> Response:
    """200 while the engine is there, while draining too."""
    if not service.gateway.engine_ready:
        raise EngineUnavailable("The engine is not ready.", retry_after=1)
    return Response()


@router.get("/health_generate")
async def health_generate(service: ServiceDep) -> Response:
    """200 once the engine has generated a token for this call."""
    gateway = service.gateway
    some_id = min(gateway.info.eos_token_ids, default=0)
    request = GenerationRequest(prompt=TokenPrompt([some_id]), sampling=SamplingWishes(max_tokens=1, temperature=0.0))
    prepared = await gateway.input.prepare(request)
    async with gateway.open([prepared]) as collectors:
        await collectors[0].whole()
    return Response()


@router.get("/version")
async def version(service: ServiceDep) -> dict[str, str]:
    """The gateway's version."""
    return {"version": service.version}
