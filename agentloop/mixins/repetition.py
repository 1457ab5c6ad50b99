"""Warns a model that makes the same calls again and again, and ends the run if it goes on.

Copy with: the core.

The same turn three times in a row (A, A, A), or the same cycle of turns twice (A, B, A, B), is a
repetition: after it the model is told so, once. If it goes on, its calls are not run and the run
ends with "no_progress". A turn is its calls, in any order. Arguments are compared as JSON values,
whatever their order and spacing, and results not at all: a new timestamp is no progress. What the
user says meanwhile is a new beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256

from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Record,
    Result,
    RunStart,
    Stop,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ..results import truncate
from ..transcript import LogReader

LONGEST_CYCLE = 5  # turns
WARNING = (
    "You are repeating yourself: {}. The same calls get you no further. Do something else, or say "
    "what is in the way. If you go on like this, the run ends."
)
STOPPED_REPEATING = "Not run: you have repeated this after a warning, and the run ends here."


class Repetition(Loop):
    """Ends a run with "no_progress" if it repeats its calls after a warning.

    repetition_limit: how often in a row the same turn is a repetition. A cycle of up to five turns
        is one sooner by one time, but not the first time.
    repetition_exempt: the names of tools whose calls do not count, such as one that polls.
    """

    repetition_limit: int = 3
    repetition_exempt: Collection[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.repetition_limit) is not int or self.repetition_limit < 2:
            raise ValueError(f"repetition_limit is an int, 2 or more, not {self.repetition_limit}")
        if isinstance(self.repetition_exempt, str):
            raise TypeError(f"repetition_exempt= takes a list: [{self.repetition_exempt!r}]")

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        turns = self.reader(Turns, frozenset(self.repetition_exempt))
        made, warned = turns.made, turns.warned
        cycle = repeated(made, self.repetition_limit)
        name = cycle_name(cycle)
        if cycle and name in warned and len(made) - warned[name] >= len(cycle):
            for call in calls:
                self.record(ToolMessage(call.id, call.name, STOPPED_REPEATING, is_error=True))
            raise Stop("no_progress", f"The run was repeating itself: {describe(cycle)}.")
        result = await super().call_tools(calls)
        if cycle and name not in warned and result is None:
            self.tell(WARNING.format(describe(cycle)), repetition=name)
        return result


class Turns(LogReader):
    """The turns since a run or the user began anew, each as a text, exempt calls left out.

    warned: how many there were at each warning.
    """

    def __init__(self, exempt: Collection[str]) -> None:
        super().__init__()
        self._exempt = exempt
        self.made: list[str] = []
        self.warned: dict[str, int] = {}

    def take(self, log: Sequence[Record], at: int) -> None:
        record = log[at]
        if isinstance(record, RunStart) or not getattr(record, "hidden", True):
            self.made, self.warned = [], {}
        elif isinstance(record, UserMessage):
            if name := (record.extra or {}).get("repetition"):
                self.warned[str(name)] = len(self.made)
        elif isinstance(record, AssistantMessage):
            counted = (call for call in record.tool_calls if call.name not in self._exempt)
            if turn := " and ".join(sorted(map(canonical, counted))):
                self.made.append(turn)


def calls_made(
    log: Sequence[Record], exempt: Collection[str] = ()
) -> tuple[list[str], dict[str, int]]:
    """The turns of a log since its newest beginning, and how many there were at each warning."""
    turns = Turns(exempt)
    turns.catch_up(log)
    return turns.made, turns.warned


def canonical(call: ToolCall) -> str:
    """A call as a text that is the same for the same arguments."""
    arguments = call.parsed
    text = call.arguments.strip() if arguments is None else json.dumps(arguments, sort_keys=True)
    return f"{call.name}({text})"


def repeated(made: list[str], limit: int = 3) -> list[str]:
    """The shortest cycle of turns that was repeated at the end; [] if there is none."""
    for length in range(1, LONGEST_CYCLE + 1):
        count = length * (limit if length == 1 else max(2, limit - 1))
        last = made[-count:]
        if len(last) == count and last[length:] == last[:-length]:
            return last[-length:]
    return []


def cycle_name(cycle: list[str]) -> str:
    """A short name, the same for A, B as for B, A: where one looks in first is chance."""
    first = min(("\n".join(cycle[at:] + cycle[:at]) for at in range(len(cycle))), default="")
    return sha256(first.encode()).hexdigest()[:16]


def describe(cycle: list[str]) -> str:
    return "again and again " + ", then ".join(truncate(text, 200) for text in cycle)
