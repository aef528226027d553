"""docs/output_processor.md names tests for what is built: they exist and pass."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.markdown import ROOT, code_spans, rows

PAGE = ROOT / "docs" / "output_processor.md"
ROWS = {cells[0]: cells for cells in rows(PAGE.read_text())}
NOT_BUILT = {"S15"}
TESTS = list(dict.fromkeys(test for cells in ROWS.values() for test in code_spans(cells[3])))


def test_the_page_has_the_sixteen_rows_in_order() -> None:
    assert list(ROWS) == [f"S{number}" for number in range(1, 17)]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_what_is_built_where_and_what_is_left(row: str) -> None:
    _, built, where, tests, left = ROWS[row]
    if row in NOT_BUILT:
        assert [built, where, tests] == ["", "", ""]
        assert left
    else:
        assert built
        assert all((ROOT / path).is_file() for path in code_spans(where))
        assert code_spans(where)
        assert code_spans(tests)
    assert all(re.search(r": (issue \d|later)$", part) for part in left.split("; ") if part)


@pytest.mark.timeout(600)
def test_the_named_tests_are_collected_and_pass(tmp_path: Path) -> None:
    assert not any(Path(__file__).name in test for test in TESTS), "a test that runs itself never ends"
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *TESTS],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (suite,) = ET.parse(report).getroot().iter("testsuite")
    assert int(suite.attrib["tests"]) >= len(TESTS)
    assert suite.attrib["skipped"] == "0"
