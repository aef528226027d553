"""The error tree. A class is a kind of failure; its `code` is the wire code and the metric label alike.

TailraceError
├── RequestError                  the request is at fault (4xx)
│   ├── InvalidValue              400 invalid_value
│   ├── UnsupportedFeature        400 unsupported_feature    a known field that this engine or version can't do
│   ├── ContextLengthExceeded     400 context_length_exceeded
│   ├── InvalidApiKey             401 invalid_api_key
│   ├── ModelNotFound             404 model_not_found
│   ├── NotFound                  404 not_found
│   ├── MethodNotAllowed          405 method_not_allowed
│   ├── PayloadTooLarge           413 payload_too_large
│   └── RateLimited               429 rate_limit_exceeded
└── ServiceError                  the service is at fault (5xx)
    ├── EngineFault               500 engine_fault           the engine failed this request
    │   └── InvalidLogits         500 invalid_logits         NaN where a number must stand
    ├── InternalFault             500 internal_error         a fault of ours
    ├── Overloaded                503 overloaded             a queue is full
    ├── Draining                  503 draining               the server is shutting down
    ├── Aborted                   503 aborted                ended by the server before its end
    ├── EngineUnavailable         503 engine_unavailable     not connected, starting, restarting
    │   └── EngineDied            503 engine_died            it died with the request in it
    └── DeadlineExceeded          504 deadline_exceeded
"""

from typing import ClassVar


class TailraceError(Exception):
    """Base of every failure that a client may see.

    `message` is for people and never holds a stack trace; `param` names the request's field at fault;
    `retry_after` is in seconds.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class RequestError(TailraceError):
    """The request is at fault; sending it again unchanged fails again."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class InvalidValue(RequestError):
    """A field has a wrong type or value."""

    code = "invalid_value"


class UnsupportedFeature(RequestError):
    """A known field asks for what this engine or this version can't do."""

    code = "unsupported_feature"


class ContextLengthExceeded(RequestError):
    """Prompt, or prompt and asked tokens, exceed the model's context."""

    code = "context_length_exceeded"


class InvalidApiKey(RequestError):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class ModelNotFound(RequestError):
    """The named model is not served here."""

    status = 404
    code = "model_not_found"
    type = "not_found_error"


class NotFound(RequestError):
    """No such route or object."""

    status = 404
    code = "not_found"
    type = "not_found_error"


class MethodNotAllowed(RequestError):
    """The route exists, under another method."""

    status = 405
    code = "method_not_allowed"


class PayloadTooLarge(RequestError):
    """The body exceeds the server's limit."""

    status = 413
    code = "payload_too_large"


class RateLimited(RequestError):
    """The caller's own share is used up."""

    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"


class ServiceError(TailraceError):
    """The service is at fault; the same request may succeed later."""


class EngineFault(ServiceError):
    """The engine failed this request."""

    code = "engine_fault"


class InvalidLogits(EngineFault):
    """The engine produced NaN where a number must stand."""

    code = "invalid_logits"


class InternalFault(ServiceError):
    """A fault of the gateway itself."""


class Overloaded(ServiceError):
    """A queue is full."""

    status = 503
    code = "overloaded"


class Draining(ServiceError):
    """The server is shutting down and takes no new work."""

    status = 503
    code = "draining"


class Aborted(ServiceError):
    """The server ended the request before its own end."""

    status = 503
    code = "aborted"


class EngineUnavailable(ServiceError):
    """No engine is ready to take the request."""

    status = 503
    code = "engine_unavailable"


class EngineDied(EngineUnavailable):
    """The engine went away with the request in it."""

    code = "engine_died"


class DeadlineExceeded(ServiceError):
    """The request ran out of its time."""

    status = 504
    code = "deadline_exceeded"


def error_of(code: str, message: str) -> TailraceError:
    """Make the error that a wire code stands for; EngineFault for a code that is not in the tree."""
    kinds: list[type[TailraceError]] = [TailraceError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.code == code and kind is not TailraceError:
            return kind(message)
    return EngineFault(message)
