"""The tests of agentloop. `AGENTLOOP_SLOW=1` runs each of them, with all of its cases."""

import os
from collections.abc import Sequence
from typing import TypeVar

SLOW = bool(os.environ.get("AGENTLOOP_SLOW"))
Case = TypeVar("Case")


def some(cases: Sequence[Case], count: int) -> list[Case]:
    """All cases if slow tests run, else at most `count` of them: the first, the last, and between.

    some(range(100), 4)  # [0, 33, 66, 99]
    """
    if SLOW or len(cases) <= count:
        return list(cases)
    return [cases[at * (len(cases) - 1) // max(1, count - 1)] for at in range(count)]
