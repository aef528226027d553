"""The requests of the control routes."""

from routers.schemas.ignored import IgnoredFields


class AbortRequest(IgnoredFields):
    """Which requests to abort: those of exactly this id, or all."""

    rid: str = ""
    abort_all: bool = False
