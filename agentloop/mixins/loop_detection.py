"""Warns a model that makes the same calls again and again, and ends the run if it goes on.

Copy with: the core.

The same turn three times in a row (A, A, A), or the same cycle of turns (A, B, A, B, A, B), is a
repetition: after it the model reads a warning. If it does the same once more, its calls do not run
and the run ends with "no_progress". Two turns are the same if their calls are, in any order.
Arguments are compared as JSON values, and results not at all: a new timestamp is no progress. What
the user says begins a new count.
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
    "You are repeating yourself: again and again {}. The same calls get you no further. Do "
    "something else, or say what is in the way. If you go on like this, the run ends."
)


class LoopDetection(Loop):
    """Ends a run with "no_progress" if it repeats its calls after a warning.

    repetition_limit: how often in a row the same turn, or cycle of up to five turns, is a
        repetition.
    repetition_exempt: the names of tools whose calls do not count, such as one that polls.
    """

    repetition_limit: PositiveInt = 3
    repetition_exempt: Sequence[str] = ()

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        past = self.fold(Turns, *self.repetition_exempt).past
        limit = self.repetition_limit
        cycle = repeated(past, limit)
        text = clip(", then ".join(cycle), 1_000)
        if repeated(past, limit + 1):
            raise Stop("no_progress", f"The run was repeating itself: {text}.")
        result = await super().call_tools(calls)
        is_new = cycle and not repeated(past[:-1], limit)
        counts = any(call.name not in self.repetition_exempt for call in calls)
        if is_new and counts and result is None:
            self.add_note(WARNING.format(text))
        return result


class Turns(Fold):
    """The turns since the run began or the user last spoke, each as a text.

    Calls of `exempt` tools are left out, and so are turns without another call.
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
    """Write a call as a text that is the same for the same arguments."""
    arguments = call.arguments if call.parsed is None else call.parsed
    return f"{call.name}({json.dumps(arguments, sort_keys=True)})"


def repeated(past: list[str], times: int) -> list[str]:
    """Return the shortest cycle that the turns end with `times` times in a row, or []."""
    for length in range(1, LONGEST_CYCLE + 1):
        cycle = past[-length:]
        if past[-length * times :] == cycle * times:
            return cycle
    return []
