"""`POST /abort_request` in SGLang's shape."""

from fastapi import APIRouter, Request, Response

from engines.errors import Aborted
from routers.body import ignored_header, parse, read_json
from routers.generation import body_schema
from routers.schemas.control import AbortRequest
from routers.service import ServiceDep

router = APIRouter(tags=["control"])


@router.post("/abort_request", openapi_extra=body_schema(AbortRequest))
async def abort_request(request: Request, service: ServiceDep) -> Response:
    """Abort every live request that its client calls by exactly this id (rid or X-Request-Id), or all.

    200 also where there is none: it may have ended meanwhile.
    """
    body = parse(AbortRequest, await read_json(request))
    ignored = body.ignored(strict=service.options.strict)
    if body.abort_all:
        service.gateway.abort_all(Aborted("All requests were aborted."))
    elif body.rid:
        service.gateway.abort(body.rid)
    return Response(headers=ignored_header(ignored))
