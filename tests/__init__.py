"""The tests of agentloop. `AGENTLOOP_SLOW=1` runs all tests with all cases."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
SLOW = bool(os.environ.get("AGENTLOOP_SLOW"))
Case = TypeVar("Case")


def some(cases: Sequence[Case], count: int) -> list[Case]:
    """Return all cases if slow tests run, otherwise at most `count`, from the first to the last.

    some(range(100), 4)  # [0, 33, 66, 99]
    """
    if SLOW or len(cases) <= count:
        return list(cases)
    return [cases[at * (len(cases) - 1) // max(1, count - 1)] for at in range(count)]
