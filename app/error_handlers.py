"""Every failure as an answer in OpenAI's shape: our own errors, bad bodies, unknown routes, early leavers."""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.error_response import error_response
from engines.errors import (
    InvalidApiKey,
    InvalidValue,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    RequestError,
    ServiceError,
    TailraceError,
)

_BY_STATUS: dict[int, tuple[type[TailraceError], str]] = {
    400: (InvalidValue, "The request is not valid."),
    401: (InvalidApiKey, "The key is not valid."),
    404: (NotFound, "There is no such route."),
    405: (MethodNotAllowed, "The route doesn't take this method."),
    413: (PayloadTooLarge, "The body is too large."),
    429: (RateLimited, "Too many requests."),
}
_MOST_FAULTS = 10


def add_error_handlers(app: FastAPI) -> None:
    """Register a handler for each kind but unexpected exceptions, which FailureLayer answers."""
    app.add_exception_handler(TailraceError, _answer_ours)
    app.add_exception_handler(RequestValidationError, _answer_invalid_body)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_leaver)


async def _answer_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, TailraceError)
    return error_response(error)


async def _answer_invalid_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(error_of_faults(error.errors()))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # FastAPI wraps whatever `receive` raises while it reads a body.
    if isinstance(error.__cause__, TailraceError):
        return error_response(error.__cause__)
    if isinstance(error.__cause__, ClientDisconnect):
        return await _answer_leaver(request, error.__cause__)
    fallback = (RequestError if error.status_code < 500 else ServiceError, str(error.detail))
    kind, message = _BY_STATUS.get(error.status_code, fallback)
    return error_response(kind(message), status=error.status_code, headers=error.headers)


async def _answer_leaver(request: Request, error: Exception) -> Response:
    """Nobody reads it: it is for the logs and counters, which would take the request for a failed one."""
    return Response(status_code=499)


def error_of_faults(faults: Any) -> InvalidValue:
    """One error that names each field at fault, from the faults that pydantic lists; the first is its `param`.

    What was sent in these fields is not repeated.
    """
    named = [(_field_of(fault), _message_of(fault)) for fault in faults]
    message = "; ".join(f"{field}: {text}" if field else text for field, text in named[:_MOST_FAULTS])
    if len(named) > _MOST_FAULTS:
        message += f"; and {len(named) - _MOST_FAULTS} more"
    return InvalidValue(message, param=named[0][0] if named else None)


def _field_of(fault: Any) -> str | None:
    if fault["type"] == "json_invalid":
        return None
    place = [str(part) for part in fault["loc"]]
    if place[:1] in (["body"], ["query"], ["path"], ["header"]):
        place = place[1:]
    return ".".join(place) or None


def _message_of(fault: Any) -> str:
    if fault["type"] == "json_invalid":
        return f"The body is not valid JSON: {fault.get('ctx', {}).get('error', fault['msg'])}"
    text: str = fault["msg"]
    return text
