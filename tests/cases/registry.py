"""Which check stands for which case."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tests.cases.loading import Case
from tests.cases.stage import Stage

Check: TypeAlias = Callable[[Case, Stage], Awaitable[None]]

CHECKS: dict[str, Check] = {}
"""By case id."""


def covers(case_id: str) -> Callable[[Check], Check]:
    """Register a check as the one of a case."""

    def register(check: Check) -> Check:
        assert case_id not in CHECKS, case_id
        CHECKS[case_id] = check
        return check

    return register
