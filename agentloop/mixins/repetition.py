"""Warns a model that makes the same calls again and again, and ends the run if it goes on.

Copy with: the core.

The same call three times in a row (A, A, A), or the same cycle of calls twice (A, B, A, B), is a
repetition: after it the model is told so, once in a run. If it goes on, its calls are not run and
the run ends with "no_progress". Arguments are compared as JSON values, whatever their order and
spacing, and results not at all: a new timestamp is no progress. Calls of one turn count in any
order. What the user says meanwhile is a new beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256

from ..loop import Loop
from ..messages import Record, Result, RunStart, Stop, ToolCall, ToolMessage, UserMessage
from ..results import truncate

LONGEST_CYCLE = 5  # calls
WARNING = (
    "You are repeating yourself: {}. The same calls get you no further. Do something else, or say "
    "what is in the way. If you go on like this, the run ends."
)
STOPPED_REPEATING = "Not run: you have repeated this after a warning, and the run ends here."


class Repetition(Loop):
    """Ends a run with "no_progress" if it repeats its calls after a warning.

    repetition_limit: how often in a row the same call is a repetition. A cycle of up to five calls
        is one sooner by one time, but not the first time.
    repetition_exempt: the names of tools that may be repeated, such as one that polls.
    """

    repetition_limit: int = 3
    repetition_exempt: Collection[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repetition_limit < 2:
            raise ValueError(f"repetition_limit is 2 or more, not {self.repetition_limit}")
        if isinstance(self.repetition_exempt, str):
            raise TypeError(f"repetition_exempt= takes a list: [{self.repetition_exempt!r}]")

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        made, warned = calls_made(self.log, self.repetition_exempt)
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


def calls_made(
    log: Sequence[Record], exempt: Collection[str] = ()
) -> tuple[list[str], dict[str, int]]:
    """The calls of the newest run, each as a text, and how many there were at each warning.

    Where a repetition cannot go on (an exempt call, a word of the user), a number stands.
    """
    start = next((at for at in range(len(log) - 1, -1, -1) if isinstance(log[at], RunStart)), 0)
    made: list[str] = []
    warned: dict[str, int] = {}
    for record in log[start:]:
        if isinstance(record, UserMessage):
            if name := (record.extra or {}).get("repetition"):
                warned[str(name)] = len(made)
            elif not record.hidden:
                made.append(str(len(made)))
        elif calls := getattr(record, "tool_calls", ()):
            for text, name in sorted((canonical(call), call.name) for call in calls):
                made.append(str(len(made)) if name in exempt else text)
    return made, warned


def canonical(call: ToolCall) -> str:
    """A call as a text that is the same for the same arguments."""
    arguments = call.parsed
    text = call.arguments.strip() if arguments is None else json.dumps(arguments, sort_keys=True)
    return f"{call.name}({text})"


def repeated(made: list[str], limit: int = 3) -> list[str]:
    """The shortest cycle of calls that was repeated at the end; [] if there is none."""
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
