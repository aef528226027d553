"""`GET /v1/models` and one of them."""

from typing import Any

from fastapi import APIRouter

from routers.service import Service, ServiceDep

router = APIRouter(tags=["openai"])


def model_card(service: Service, name: str) -> dict[str, Any]:
    """A model as OpenAI lists it, with vLLM's root and max_model_len."""
    info = service.gateway.info
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "tailrace",
        "root": info.model,
        "parent": None,
        "max_model_len": info.max_model_len,
        "permission": [],
    }


@router.get("/v1/models")
async def list_models(service: ServiceDep) -> dict[str, Any]:
    """All names of the served model."""
    return {"object": "list", "data": [model_card(service, name) for name in service.names]}


@router.get("/v1/models/{name:path}")
async def show_model(name: str, service: ServiceDep) -> dict[str, Any]:
    """One of them; 404 for a name that is not served."""
    return model_card(service, service.check_model(name))
