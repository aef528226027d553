"""Request bodies: strict JSON into a dialect's model, faults into errors that name the field."""

import re
from typing import Any, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from engines.errors import InvalidValue, TailraceError

Model = TypeVar("Model", bound=BaseModel)

IGNORED_HEADER = "x-tailrace-ignored"
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_MOST_NAMES = 32


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object. InvalidValue for anything else: NaN, Infinity and lone surrogates are no JSON."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type not in {"application/json", ""} and not content_type.endswith("+json"):
        raise InvalidValue("The content type must be application/json.")
    try:
        value = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise InvalidValue(f"The body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidValue("The body must be a JSON object.")
    return value


def parse(model: type[Model], body: dict[str, Any]) -> Model:
    """Validate. InvalidValue names the first field at fault and never repeats its value."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part)[:64] for part in first["loc"])
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, TailraceError):
            raise cause from error
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidValue(f"{path}: {message}" if path else message, param=path or None) from error


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that reports fields which had no effect; names that a header can't hold are counted as `?`."""
    if not names:
        return {}
    shown = [name if _NAME.fullmatch(name) else "?" for name in sorted(names)[:_MOST_NAMES]]
    return {IGNORED_HEADER: ",".join(shown)}
