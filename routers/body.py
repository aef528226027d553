"""Request bodies: strict JSON into a dialect's model, faults into errors that name the field."""

import re
from typing import Any, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engines.errors import InvalidValue, TailraceError

Model = TypeVar("Model", bound=BaseModel)

IGNORED_HEADER = "x-tailrace-ignored"
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_MOST_NAMES = 32
_OBJECT_WANTED = "Input should be an object"


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
    """Validate. InvalidValue names a field at fault and never repeats its value.

    Of several faults it is the first, or the first of those deepest inside: where a field may be of several types, the
    fault is in the type that fits best.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        paths = [_path_in(body, fault) for fault in faults]
        place = max(range(len(faults)), key=lambda place: (len(paths[place]), -place))
        fault, path = faults[place], ".".join(part[:64] for part in paths[place])
        cause = fault.get("ctx", {}).get("error")
        if isinstance(cause, TailraceError):
            raise cause from error
        message = _OBJECT_WANTED if fault["type"] == "model_type" else fault["msg"].removeprefix("Value error, ")
        raise InvalidValue(f"{path}: {message}" if path else message, param=path or None) from error


def _path_in(body: dict[str, Any], fault: ErrorDetails) -> list[str]:
    """Where a fault is in the body. Its location also names types that were tried, which the client can't know."""
    path: list[str] = []
    here: Any = body
    for part in fault["loc"]:
        if isinstance(part, int) if isinstance(here, list) else isinstance(here, dict) and part in here:
            path.append(str(part))
            here = here[part]
    return [*path, str(fault["loc"][-1])] if fault["type"] == "missing" else path


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that reports fields which had no effect; names that a header can't hold are counted as `?`."""
    if not names:
        return {}
    shown = [name if _NAME.fullmatch(name) else "?" for name in sorted(names)[:_MOST_NAMES]]
    return {IGNORED_HEADER: ",".join(shown)}
