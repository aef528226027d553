"""An error as a whole answer of the OpenAI routes."""

import math
from collections.abc import Mapping

from starlette.responses import Response

from engines.errors import TailraceError
from processors.dialects.openai_errors import error_body


def error_response(
    error: TailraceError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with the error's own status, or the given one, and Retry-After where the error says when."""
    response = Response(error_body(error), status or error.status, headers, media_type="application/json")
    if error.retry_after is not None:
        response.headers["retry-after"] = str(max(0, math.ceil(error.retry_after)))
    return response
