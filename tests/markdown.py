"""The parts of a Markdown page that tests hold against the code."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_RUN = re.compile(r"^<!-- run -->\n```(bash|python)\n(.*?)```\n\n```text\n(.*?)```$", re.DOTALL | re.MULTILINE)
_CELL_BORDER = re.compile(r"(?<!\\)\|")


class Example(msgspec.Struct, frozen=True):
    """A program that a page shows after `<!-- run -->`, and what it prints."""

    language: str
    program: str
    output: str


def name_of(page: Path) -> str:
    """The page's place in the repository."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    return str(found)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each table row, without heads."""
    for above, line in itertools.pairwise(text.splitlines()):
        if line.startswith("|") and above.startswith("|") and not line.startswith(("|---", "| ---")):
            yield [cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]]


def code_spans(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def headings(page: Path) -> list[str]:
    """The headings as GitHub makes anchors of them."""
    found = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]


def examples(page: Path) -> list[Example]:
    """The programs that a page says can be run."""
    return [Example(*parts) for parts in _RUN.findall(page.read_text())]
