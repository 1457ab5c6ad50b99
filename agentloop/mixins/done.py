"""A run ends only when the model calls a done tool.

Copy with: the core, common/nudge.py.

    agent = Agent(llm=llm, tools=[read], require_done_tool=True)

`@tool(ends_run=True)` makes a done tool. If an agent has none, it offers the built-in `done`. Any
other tool can raise TaskComplete to end the run. If the model answers with plain text, a message
asks it to go on or to call the done tool. After three such messages in a row, the next plain answer
ends the run as "no_progress".
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.nudge import nudge
from ..loop import Loop
from ..messages import Result, TaskComplete
from ..tools import Tool, tool

DONE_NUDGE = "The task is not finished: continue, or call the {tool} tool if everything is done."


@tool(
    "Finish the task. Call this once everything is done, with the answer.",
    ends_run=True,
    read_only=True,
    idempotent=True,  # after a kill, it ends the run
)
def done(message: str) -> None:
    raise TaskComplete(message)


class DoneTool(Loop):
    """Ends a run when the model calls a done tool.

    require_done_tool: if False, a plain answer ends the run, too.
    done_nudge: what the model reads after a plain answer; `{tool}` becomes the name of the done
        tool.
    """

    require_done_tool: bool = True
    done_nudge: str = DONE_NUDGE

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self.require_done_tool and not done_names(tools):
            return [*tools, done]
        return tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if not self.require_done_tool or not answer or answer.stop_reason != "completed":
            return answer
        names = " or ".join(done_names(self.toolset()))
        nudge(self, self.done_nudge.replace("{tool}", names))
        return None


def done_names(tools: Sequence[Tool]) -> list[str]:
    """The names of the done tools: `done`, and tools that have `ends_run`."""
    return [tool.name for tool in tools if tool.name == "done" or tool.ends_run]
