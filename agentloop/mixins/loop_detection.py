"""Warns a model that repeats the same calls, and ends the run if the model continues.

Copy with: the core.

The same turn three times in a row (A, A, A), or the same cycle of turns (A, B, A, B, A, B), is a
repetition: a warning is added for the model. After another repetition, the calls of the last turn
do not run, and the run ends with "no_progress". Two turns are equal if their calls are equal, in
any order. Arguments are compared as JSON values. Results are not compared, because a new timestamp
does not mean progress. A message from the user resets the count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import PositiveInt

from ..content import clip
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, Result, RunStart, Stop, ToolCall
from ..transcript import Fold, Records, is_own

LONGEST_CYCLE = 5  # turns
WARNING = (
    "You repeat the same calls: {}. Repeating them makes no progress. Try a different approach, or "
    "explain the obstacle. The run ends at the next repetition."
)


class LoopDetection(Loop):
    """Ends a run with "no_progress" if it repeats its calls after a warning.

    repetition_limit: consecutive occurrences of the same turn, or of the same cycle of up to five
        turns, that count as a repetition.
    repetition_exempt: names of tools whose calls are ignored, such as a tool that polls.
    """

    repetition_limit: PositiveInt = 3
    repetition_exempt: Sequence[str] = ()

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        if any(call.parent_id for call in calls):
            return await super().call_tools(calls)  # calls of a tool, not a turn
        past = self.fold(Turns, *self.repetition_exempt).past
        limit = self.repetition_limit
        cycle = repeated(past, limit)
        text = clip(", then ".join(cycle), 1_000)
        if repeated(past, limit + 1):
            raise Stop("no_progress", f"The run repeated the same calls: {text}.")
        result = await super().call_tools(calls)
        is_new = cycle and not repeated(past[:-1], limit)
        counts = any(call.name not in self.repetition_exempt for call in calls)
        if is_new and counts and result is None:
            self.add_note(WARNING.format(text))
        return result


class Turns(Fold):
    """The turns since the start of the run or the last message from the user, as texts.

    Calls of `exempt` tools are omitted, as are turns without any other call.
    """

    def __init__(self, log: Records, *exempt: str) -> None:
        super().__init__(log)
        self.past: list[str] = []
        self._exempt = exempt

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, RunStart) or is_own(record):
            self.past = []
        elif isinstance(record, AssistantMessage):
            counted = [call for call in record.tool_calls if call.name not in self._exempt]
            if counted:
                self.past.append(" and ".join(sorted(map(canonical, counted))))


def canonical(call: ToolCall) -> str:
    """Return a call as text; equal arguments give equal texts."""
    arguments = call.arguments if call.parsed is None else call.parsed
    return f"{call.name}({json.dumps(arguments, sort_keys=True)})"


def repeated(past: list[str], times: int) -> list[str]:
    """Return the shortest cycle that occurs `times` times in a row at the end, or []."""
    for length in range(1, LONGEST_CYCLE + 1):
        cycle = past[-length:]
        if past[-length * times :] == cycle * times:
            return cycle
    return []
