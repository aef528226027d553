"""The requests of the control routes."""

from pydantic import BaseModel, ConfigDict


class AbortRequest(BaseModel):
    """Which requests to abort: those of exactly this id, or all."""

    model_config = ConfigDict(strict=True, extra="ignore")

    rid: str = ""
    abort_all: bool = False
