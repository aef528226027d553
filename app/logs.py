"""Logging for the whole process, as lines for people or as one JSON object a line, on standard error."""

import json
import logging
import logging.config
from typing import Any

from app.settings import LogFormat, LogLevel

_OWN_FIELDS = ("request_id", "client", "method", "path", "status", "duration_ms")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, our own fields where set, and a trace under `exception`."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        entry: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = {name: vars(record)[name] for name in _OWN_FIELDS if name in vars(record)}
        if not fields.get("status"):
            entry["message"] = record.getMessage()
        entry |= fields
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, logger and message on one line; the request id at its end where a record has one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the standard library's name
        """Render a record without its trace."""
        line = super().formatMessage(record)
        request_id = vars(record).get("request_id")
        return line if request_id is None or "status" in vars(record) else f"{line} [{request_id}]"


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Send every logger, uvicorn's too, through one handler. uvicorn's own access log stays off: ours replaces it."""
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": formatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"level": level.upper(), "handlers": ["stderr"]},
            "loggers": {
                "uvicorn": {"level": level.upper(), "handlers": [], "propagate": True},
                "uvicorn.access": {"level": "CRITICAL", "handlers": [], "propagate": False},
                "sse_starlette": {"level": "WARNING"},
            },
        }
    )
