"""Warns a model that repeats its calls, and ends the run if it goes on.

Use the mixin if a model would repeat its calls until `max_iterations`. If the same turn comes three
times in a row (A, A, A), or the same cycle of turns (A, B, A, B, A, B), the model reads a warning.
If it comes once more, the calls of the last turn don't run, and the run ends with "no_progress".
Two turns are equal if their calls are, in any order. Arguments are compared as JSON values. Results
don't count, because another timestamp isn't progress. A message from the user starts the count
again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import PositiveInt

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    Record,
    Result,
    RunStart,
    ScriptedModel,
    Stop,
    ToolCall,
    UserMessage,
    call,
    tool,
)
from agentloop.content import clip
from agentloop.transcript import Fold, Records

LONGEST_CYCLE = 5  # turns
WARNING = (
    "You repeat the same calls: {}. Repeating them makes no progress. Try a different approach, or "
    "explain the obstacle. The run ends at the next repetition."
)


class LoopDetection(Loop):
    """Ends a run with "no_progress" if the model repeats its calls after a warning.

    repetition_limit: how often the same turn, or the same cycle of up to five turns, must come in a
        row to count as a repetition.
    repetition_exempt: names of tools whose calls don't count, because they poll for example.
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
    """The turns since the run or the user's last message, in a form that can be compared.

    Calls of `exempt` tools are left out, and so are turns that have no others.
    """

    def __init__(self, log: Records, *exempt: str) -> None:
        super().__init__(log)
        self.past: list[str] = []
        self._exempt = exempt

    def take(self, at: int, record: Record | Message) -> None:
        is_prompt = isinstance(record, UserMessage) and not record.hidden
        if isinstance(record, RunStart) or is_prompt:
            self.past = []
        elif isinstance(record, AssistantMessage):
            counted = [call for call in record.tool_calls if call.name not in self._exempt]
            if counted:
                self.past.append(" and ".join(sorted(map(canonical, counted))))


def canonical(call: ToolCall) -> str:
    """A call as text, so that equal arguments give equal texts."""
    arguments = call.arguments if call.parsed is None else call.parsed
    return f"{call.name}({json.dumps(arguments, sort_keys=True)})"


def repeated(past: list[str], times: int) -> list[str]:
    """The shortest cycle that comes `times` times in a row at the end, or []."""
    for length in range(1, LONGEST_CYCLE + 1):
        cycle = past[-length:]
        if past[-length * times :] == cycle * times:
            return cycle
    return []


class Careful(LoopDetection, Agent): ...


@tool("Look into a room")
def look(room: str) -> str:
    return f"Nobody is in the {room}."


if __name__ == "__main__":
    llm = ScriptedModel(*[call("look", room="kitchen")] * 4)
    agent = Careful(llm=llm, tools=[look])
    result = agent.run_sync("Find Ada.")
    print("warning:", llm.requests[-1].messages[-1].text)
    print(f"{result.stop_reason}: {result.text}")
