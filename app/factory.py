"""The app, assembled: routes, error handlers, and the layers in their order."""

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.access_log import AccessLogLayer
from app.auth import AuthLayer
from app.body_limit import BodyLimitLayer
from app.engine_choice import choose_engine
from app.error_handlers import add_error_handlers
from app.exposition import metrics_router
from app.failures import FailureLayer
from app.http_metrics import instrument_http
from app.lifespan import lifespan_of
from app.metrics import Metrics
from app.request_id import RequestIdLayer
from app.settings import Settings
from app.version import VERSION
from engines.protocol import EngineClient
from routers import chat, completions, control, generate, health, model_info, models, tokenize


def create_app(settings: Settings, engine: EngineClient | None = None) -> FastAPI:
    """Make an app of its own: two in one process share nothing. Its lifespan starts the engine, or the given one.

    InvalidSettings where the settings name no engine that exists.
    """
    make_engine = choose_engine(settings) if engine is None else lambda: engine
    registry = CollectorRegistry()
    metrics = Metrics(settings.latency_buckets)
    registry.register(metrics)
    app = FastAPI(
        title="Tailrace",
        summary="A streaming gateway for large language models with exact logprobs.",
        version=VERSION,
        lifespan=lifespan_of(settings, metrics, make_engine),
        # A redirect would make the raw path of any request a label of the metrics.
        redirect_slashes=False,
    )
    add_error_handlers(app)
    app.include_router(metrics_router(registry))
    for routes in (completions, chat, generate, control, models, model_info, tokenize, health):
        app.include_router(routes.router)
    add_layers(app, settings, registry)
    return app


def add_layers(app: FastAPI, settings: Settings, registry: CollectorRegistry) -> None:
    """Wrap the app; the last layer added is the outermost.

    request id > access log > http metrics > failures > auth > body limit > routes
    """
    key = settings.api_key
    app.add_middleware(BodyLimitLayer, settings.max_body)
    app.add_middleware(AuthLayer, None if key is None else key.get_secret_value())
    app.add_middleware(FailureLayer)
    instrument_http(app, registry, settings.latency_buckets)
    app.add_middleware(AccessLogLayer)
    app.add_middleware(RequestIdLayer)
