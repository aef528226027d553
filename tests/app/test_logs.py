import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.logs import JsonFormatter, TextFormatter

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
import logging
from app.logs import configure_logging
configure_logging({log_format!r}, {level!r})
logging.getLogger("tailrace.x").info("told %d", 1)
logging.getLogger("uvicorn.error").info("started")
logging.getLogger("uvicorn.access").info("never")
logging.getLogger("tailrace.x").debug("detail")
"""


def record(message: str = "m", **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("tailrace.x", logging.WARNING, "f.py", 1, message, None, None)
    vars(made).update(extra)
    return made


def lines_of(log_format: str, level: str = "info") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(log_format=log_format, level=level)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_text_lines() -> None:
    lines = lines_of("text")
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO    tailrace.x: told 1",
        "INFO    uvicorn.error: started",
    ]


def test_json_lines_and_level() -> None:
    entries = [json.loads(line) for line in lines_of("json", "debug")]
    assert [(entry["logger"], entry["level"], entry["message"]) for entry in entries] == [
        ("tailrace.x", "info", "told 1"),
        ("uvicorn.error", "info", "started"),
        ("tailrace.x", "debug", "detail"),
    ]


def test_an_access_line_in_json_is_its_fields() -> None:
    fields = {
        "client": "c:1",
        "method": "GET",
        "path": "/x",
        "status": 200,
        "duration_ms": 1.5,
        "request_id": "mine",
    }
    entry = json.loads(JsonFormatter().format(record("the line", **fields)))
    assert entry.pop("time")
    assert entry == fields | {"level": "warning", "logger": "tailrace.x"}


def test_a_trace_stays_in_the_one_json_line() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info(), request_id="mine"))
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert "ValueError: a\nb" in entry["exception"]
    assert (entry["message"], entry["request_id"]) == ("failed", "mine")


def test_the_request_id_stands_at_the_end_of_a_text_line() -> None:
    assert TextFormatter().format(record("failed", request_id="mine")).endswith("failed [mine]")


@pytest.mark.parametrize("text", ["a\nb", "\ud800", "\u2028"])
def test_json_lines_hold_any_text(text: str) -> None:
    line = JsonFormatter().format(record(text))
    assert json.loads(line)["message"] == text
    assert len(line.splitlines()) == 1
