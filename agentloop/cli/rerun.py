"""Does the runs of a session again with an agent: what `replay --testcase` prints calls it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Decision,
    Record,
    RunEnd,
    RunStart,
    SideRequest,
    Summary,
    ToolMessage,
    ToolStart,
    UserMessage,
)
from ..models.replay import ReplayModel

ENDED = ("completed", "done", "max_iterations", "no_progress", "refused")  # of itself, not cut off


async def rerun(agent: Loop, llm: ReplayModel) -> None:
    """Do a session's runs again with a copy of this agent, each from where the session stood.

    Its tools run. Left out is a run that was cut off or failed, or in which somebody said
    something, allowed or denied a call, and one with requests that are not in the session.
    Raises ReplayMismatch as `assert_done` does. ValueError: no run is left.
    """
    if not (runs := own_runs(llm.log)):
        raise ValueError(f"{llm.path} has no run that can be done again")
    twin: Any = agent.fork()
    twin.llm = llm
    if getattr(getattr(twin, "compaction", None), "model", None):
        twin.compaction = copy(twin.compaction)
        twin.compaction.model = llm  # which has its summaries too
    for begin, end in runs:
        twin.log = llm.log[:begin]
        llm.number, llm.end = (sum(entry.at < at for entry in llm.entries) for at in (begin, end))
        await twin.run()
        if llm.number < llm.end:
            break
    llm.assert_done()


def own_runs(log: Sequence[Record]) -> list[tuple[int, int]]:
    """The runs that replies and tools alone made what they were.

    For each, where its own work begins, behind its prompt, and where it ends.
    """
    starts = [at for at, record in enumerate(log) if isinstance(record, RunStart)]
    work = (AssistantMessage, Summary, SideRequest, ToolStart)
    found: list[tuple[int, int]] = []
    for start, following in pairwise([*starts, len(log)]):
        places = range(start, following)
        begin = next((at for at in places if isinstance(log[at], work)), following)
        end = next((at for at in places if isinstance(log[at], RunEnd)), following)
        ended = getattr(log[end], "stop_reason", None) in ENDED if end < following else False
        if begin < end and ended and not any(map(is_from_outside, log[begin:end])):
            found.append((begin, end))
    return found


def is_from_outside(record: Record) -> bool:
    """Whether it is in a run because of somebody, or something, that is not in the session."""
    match record:
        case ToolMessage(is_error=True):
            return record.text.startswith("Denied")  # as each gate says
        case UserMessage():
            return bool((record.extra or {}).get("sent"))
        case _:
            return isinstance(record, SideRequest | Decision)
