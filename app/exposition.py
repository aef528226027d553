"""`GET /metrics` in the Prometheus text format or OpenMetrics, as the scraper accepts."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


def metrics_router(registry: CollectorRegistry) -> APIRouter:
    """A router that serves one registry. The route is a plain function, so that it runs in a thread off the loop."""
    router = APIRouter()

    @router.get("/metrics", tags=["service"], response_class=Response)
    def get_metrics(request: Request) -> Response:
        """Every metric of the server, for Prometheus."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return router
