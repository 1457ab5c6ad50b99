"""Ends a run on a done tool only, so that the model cannot stop by just talking.

Copy with: the core.

A done tool is a function that raises TaskComplete. Bring your own, or get the built-in `done`.
After plain text the model is nudged to go on or to call it, three times at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..loop import Loop
from ..messages import Result, TaskComplete
from ..tools import Tool, tool

DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "You have not finished: go on with the task, or call the {tool} tool if it is done."


class DoneTool(Loop):
    """Ends a run when a done tool is called.

    require_done_tool: plain text is no answer. If False, it ends a run as usual.
    output_type: the type of `Result.value` (a BaseModel, a dataclass, `list[int]`, ...); the
        built-in `done` then takes it as its arguments, validated, and is required.
    done_nudge: what the model is told after plain text; `{tool}` is the done tool's name.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self.output_type is None and (not self.require_done_tool or done_names(tools)):
            return tools
        return [*tools, done_tool(self.output_type)]

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        required = self.require_done_tool or self.output_type is not None
        if answer is None or answer.stop_reason != "completed" or not required:
            return answer
        names = done_names(self.toolset())
        self.nudge(self.done_nudge.replace("{tool}", " or ".join(names)))
        return None


@cache
def done_tool(output_type: Any = None) -> Tool:
    """The built-in done tool: it takes a message, or what `output_type` says."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def hand_over(result: Any) -> None:
        raise TaskComplete(result, value=result)

    hand_over.__annotations__["result"] = output_type
    function: Any = done if output_type is None else hand_over
    return tool(DONE_DESCRIPTION, name="done", read_only=True)(function)


def done_names(tools: Sequence[Tool]) -> list[str]:
    """The names of the done tools: `done`, and those whose function names TaskComplete."""
    return [tool.name for tool in tools if tool.name == "done" or "TaskComplete" in words_of(tool)]


def words_of(tool: Tool) -> tuple[str, ...]:
    """The global names that a tool's function uses."""
    code = getattr(getattr(tool, "function", None), "__code__", None)
    return getattr(code, "co_names", ())
