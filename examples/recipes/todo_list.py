"""A to-do tool, and a guard that lets no run finish while something is open.

One wants it for long tasks, where a model forgets the second half of what it set out to do. The
list is the tool's newest result in the log, so it is there after a restart and in a fork; older
ones go out of the model's view (`ephemeral=1`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentloop import Agent, Loop, Result, ScriptedModel, ToolMessage, tool
from agentloop.messages import Record
from agentloop.models.scripted import call

MARKS = {"open": "[ ]", "done": "[x]", "dropped": "[-]"}


@dataclass
class Item:
    task: str
    state: Literal["open", "done", "dropped"]


@tool("Write your to-do list: all items, each with its state", ephemeral=1, parallel=False)
def todos(items: list[Item]) -> str:
    return "\n".join(f"{MARKS[item.state]} {item.task}" for item in items)


def open_items(log: Sequence[Record]) -> list[str]:
    """What is open on the newest list in a log."""
    for record in reversed(log):
        if isinstance(record, ToolMessage) and record.tool_name == "todos" and not record.is_error:
            return [line[4:] for line in record.text.splitlines() if line.startswith("[ ]")]
    return []


class TodoGuard(Loop):
    async def finish(self, result: Result) -> Result | None:
        answer, left = await super().finish(result), open_items(self.log)
        if answer and left and answer.stop_reason in ("completed", "done"):
            self.nudge(f"Still open: {', '.join(left)}. Do it, or drop it and say why.")
            return None
        return answer


class Worker(TodoGuard, Agent):
    tools = (todos,)


if __name__ == "__main__":
    items = [{"task": "paint the door", "state": "done"}, {"task": "clean up", "state": "open"}]
    fewer = [items[0], {"task": "clean up", "state": "dropped"}]
    script = call("todos", items=items), "Painted.", call("todos", items=fewer), "No broom here."
    worker = Worker(llm=ScriptedModel(*script))
    worker.run_sync("Paint the door and clean up.")
    for message in worker.messages:
        print(f"{type(message).__name__}: {message.text}")
