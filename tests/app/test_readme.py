"""The programs that the pages show, really run against `tailrace serve` with the real model, print what is shown.

Of the shown output `…` stands for anything, and numbers with a point may differ by what other machines compute.
"""

import asyncio
import os
import re
import sys

import pytest

from tests.client import GUARD
from tests.markdown import PAGES, Example, examples, name_of
from tests.serve_process import ServeProcess

SHOWN_URL = "http://127.0.0.1:8000"
TOLERANCE = 0.01
NUMBER = r"-?\d+\.\d+"
INTERPRETERS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
EXAMPLES = {f"{name_of(page)}-{place}": each for page in PAGES for place, each in enumerate(examples(page))}


def differences(shown: str, printed: str) -> list[tuple[float, float]]:
    """The numbers that differ too much; fails where anything else does."""
    parts = re.split(rf"(…|(?<![\w.]){NUMBER})", shown)
    pattern = "".join(
        ".*?" if part == "…" else f"({NUMBER})" if place % 2 else re.escape(part) for place, part in enumerate(parts)
    )
    found = re.fullmatch(pattern, printed, re.DOTALL)
    assert found is not None, printed
    numbers = [float(part) for part in parts[1::2] if part != "…"]
    pairs = zip(numbers, map(float, found.groups()), strict=True)
    return [(ours, theirs) for ours, theirs in pairs if abs(ours - theirs) > TOLERANCE]


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ('{"id":"x-1","p":-0.2581,"n":3}\n', True),
        ('{"id":"x-2","q":[\n0.5],"p":-0.2582,"n":3}\n', True),
        ('{"id":"x-1","p":-0.3581,"n":3}\n', False),
    ],
)
def test_numbers_may_differ_a_little_and_dots_stand_for_anything(printed: str, same: bool) -> None:
    assert (differences('{"id":"x-…,"p":-0.2581,"n":3}\n', printed) == []) is same


@pytest.mark.parametrize("printed", ['{"id":"x","n":4,"p":0.5}', '{"id":"x","n":3,"p":0.5,"q":1}', "", '{"n":3,"p":1}'])
def test_anything_else_is_a_difference(printed: str) -> None:
    with pytest.raises(AssertionError):
        differences('{…"n":3,"p":0.5}', printed)


def test_the_readme_shows_curl_and_the_sdk() -> None:
    assert [each.language for name, each in EXAMPLES.items() if name.startswith("README")] == ["bash", "python"]


@pytest.mark.serve
@pytest.mark.model
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
async def test_a_program_prints_what_is_shown(example: Example, served: ServeProcess) -> None:
    assert SHOWN_URL in example.program
    process = await asyncio.create_subprocess_exec(
        *INTERPRETERS[example.language],
        example.program.replace(SHOWN_URL, served.url),
        env={**os.environ, "no_proxy": "127.0.0.1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(GUARD):
        printed, complaints = await process.communicate()
    assert (process.returncode, complaints.decode()) == (0, "")
    assert differences(example.output.rstrip("\n"), printed.decode().rstrip("\n")) == []
