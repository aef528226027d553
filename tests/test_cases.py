import importlib
import re
from pathlib import Path

import pytest

from tests.cases.loading import load
from tests.cases.registry import CHECKS
from tests.cases.stage import Stage

for _module in ("leaving", "logprobs", "metrics", "protocol", "refusals", "scoring", "text"):
    importlib.import_module(f"tests.cases.{_module}")

TABLE = Path(__file__).parent.parent / "docs" / "cases.md"
ROW = re.compile(r"\| ([A-Z]{2}-\d\d) \| [^|]+ \| (here)?(?:; )?(left to (?:issue [3-6]|a later issue)[^|]*)? \|")


@pytest.mark.parametrize("case_id", CHECKS)
async def test_case(case_id: str, small_model_dir: Path, tmp_path: Path) -> None:
    await CHECKS[case_id](load()[case_id], Stage(small_model_dir, tmp_path))


def test_the_table_lists_every_case_once_and_says_the_truth() -> None:
    lines = [line for line in TABLE.read_text().splitlines() if re.match(r"\| [A-Z]{2}-", line)]
    rows = [ROW.fullmatch(line) for line in lines]
    assert all(rows), [line for line, row in zip(lines, rows, strict=True) if not row]
    told = {row[1]: row for row in rows if row}
    assert list(told) == list(load())
    assert all(row[2] or row[3] for row in told.values())
    assert {case_id for case_id, row in told.items() if row[2]} == CHECKS.keys()
