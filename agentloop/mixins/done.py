"""Ends a run on a done tool only, so that the model cannot stop by just talking.

Copy with: the core.

A done tool is one that raises TaskComplete. Bring your own, or get the built-in `done`. After plain
text the model is nudged to go on or to call it, three times at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from ..loop import Loop
from ..messages import Result, TaskComplete
from ..tools import FunctionTool, Tool, tool

DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "You have not finished: go on with the task, or call the {tool} tool if it is done."


class DoneTool(Loop):
    """Ends a run when a done tool is called.

    require_done_tool: whether plain text is no answer; if not, it ends a run as usual.
    output_type: what `Result.value` is to be (a BaseModel, a dataclass, `list[int]`, ...); the
        built-in `done` then takes it as its arguments, validated, and is required.
    done_nudge: what the model is told after plain text; `{tool}` is the done tool's name.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_type is not None and any(tool.name == "done" for tool in self.tools):
            raise ValueError("output_type= brings its own tool named 'done': rename or drop yours")

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self._must_be_done() and (self.output_type is not None or not _done_names(tools)):
            return [*tools, done_tool(self.output_type)]
        return tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason != "completed" or not self._must_be_done():
            return answer
        names = ["done"] if self.output_type is not None else _done_names(self.toolset())
        self.nudge(self.done_nudge.replace("{tool}", " or ".join(names)))
        return None

    def _must_be_done(self) -> bool:
        return self.require_done_tool or self.output_type is not None


@lru_cache
def done_tool(output_type: Any = None) -> Tool:
    """The built-in done tool: it takes a message, or what `output_type` says."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def hand_over(result: Any) -> None:
        raise TaskComplete(to_json(result).decode(), value=result)

    hand_over.__name__ = "output_type"  # what an error is about
    hand_over.__annotations__["result"] = output_type
    named = tool(DONE_DESCRIPTION, name="done")
    return named(done) if output_type is None else named(hand_over)


def _done_names(tools: Sequence[Tool]) -> list[str]:
    return [tool.name for tool in tools if is_done_tool(tool)]


def is_done_tool(tool: Tool) -> bool:
    """Whether a tool is named `done`, or its function says TaskComplete."""
    code = getattr(getattr(tool, "function", None), "__code__", None)
    return tool.name == "done" or (
        isinstance(tool, FunctionTool) and code is not None and "TaskComplete" in code.co_names
    )
