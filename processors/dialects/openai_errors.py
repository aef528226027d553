"""The error body of the OpenAI routes, the same for an answer, an error event and every layer of the app."""

from typing import Any

from engines.errors import TailraceError
from processors.json_text import dump


def error_body(error: TailraceError) -> bytes:
    """Render `{"error":{message,type,param,code}}` on one line.

    Lone surrogates, which no UTF-8 can hold, become "?".
    """
    fields: dict[str, Any] = {
        "message": _encodable(error.message),
        "type": error.type,
        "param": None if error.param is None else _encodable(error.param),
        "code": error.code,
    }
    return dump({"error": fields})


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
