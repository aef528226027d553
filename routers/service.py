"""What the routes stand on: built by the app, found in the lifespan's state."""

import time
from typing import Annotated

import msgspec
from fastapi import Depends, Request

from engines.errors import ModelNotFound
from engines.protocol import LogprobsMode
from processors.dialects.renderer import AnswerHead
from processors.gateway import Gateway


class RouteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Operator's settings that the routes need. Times are seconds; ping_interval 0 switches pings off.

    strict: unknown request fields are refused instead of reported. incremental: streams of /generate bring what is new.
    """

    send_timeout: float = 30.0
    ping_interval: float = 15.0
    logprobs_mode: LogprobsMode = LogprobsMode.RAW
    strict: bool = False
    incremental: bool = False


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The served model. names: under which it is asked for, the first one is shown; version: of the gateway."""

    gateway: Gateway
    names: tuple[str, ...]
    version: str
    options: RouteOptions = RouteOptions()
    created: int = msgspec.field(default_factory=lambda: int(time.time()))

    def check_model(self, name: str | None) -> str:
        """Return the name to answer with. ModelNotFound if another model is asked for; None asks for any."""
        if name is None:
            return self.names[0]
        if name not in self.names:
            raise ModelNotFound(
                f"The model {name[:200]!r} does not exist. Served here: {', '.join(self.names)}.", param="model"
            )
        return name

    @property
    def fingerprint(self) -> str:
        """What makes answers comparable: gateway version, weights, number format."""
        info = self.gateway.info
        return f"tailrace-{self.version}-{info.engine_id}-{info.dtype or 'any'}-{info.weight_version}"

    def head(self, answer_id: str, model: str) -> AnswerHead:
        """The constant part of an answer that starts now."""
        return AnswerHead(id=answer_id, created=int(time.time()), model=model, fingerprint=self.fingerprint)


def service_of(request: Request) -> Service:
    """The service from the lifespan's typed state."""
    service: Service = request.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


def request_id_of(request: Request) -> str:
    """The request's id, the client's own or made by the app's outermost layer."""
    request_id: str = request.state.request_id
    return request_id
