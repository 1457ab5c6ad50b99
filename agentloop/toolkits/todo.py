"""A to-do list for long tasks: what is open comes back to a model that forgets it.

Copy with: the core.

    class MyAgent(Todo, Agent): ...

The list is the newest result of the tool `todos`, in the log. So it is there after a restart, after
a summary and in a fork.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ToolError
from ..loop import Loop
from ..messages import Mark, Message, Record, Result, RunStart, ToolMessage, UserMessage
from ..tools import Tool, tool
from ..transcript import Fold

STILL_OPEN = "Your list still has:\n{}\nDo it, or drop it and say why."
OPEN_ITEM = re.compile(r"(?m)^\[(?:open|in_progress)\].*")  # a line of what `todos` returns
REMINDER = "Your list still has:\n{}\nGo on with it, and write the list again when it changes."


class ToldOfOpenItems(Mark):
    """The model was told, as it wanted to end its run, that its list has open items."""


@dataclass
class Item:
    """One thing to do."""

    task: str
    state: Literal["open", "in_progress", "done", "dropped"]


@tool(ephemeral=1, parallel=False, read_only=True)
def todos(items: list[Item]) -> str:
    """Write your whole to-do list: all items, also those that are done. One is in progress.

    Use it for tasks of three steps or more. Begin with it, and write it again after each step.
    """
    in_progress = [item for item in items if item.state == "in_progress"]
    if len(in_progress) > 1:
        raise ToolError("Only one item can be in progress: finish it, or set it back to open.")
    return "\n".join(f"[{item.state}] {item.task}" for item in items)


class Todo(Loop):
    """Offers the tool `todos`. Tells the model, once a run, if it would end with open items.

    todo_reminder: after so many steps (tool calls) without writing its list, the model is shown
        what is open on it.
    """

    todo_reminder: int = 10

    def toolset(self) -> Sequence[Tool]:
        return [*super().toolset(), todos]

    async def context(self) -> list[Message]:
        todo = self.fold(TodoList)
        if todo.left and todo.steps >= self.todo_reminder:
            self.add_note(REMINDER.format(todo.left), "reminder")
        return await super().context()

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        todo = self.fold(TodoList)
        holds = todo.left and todo.is_of_this_run and not todo.told
        if answer and holds and answer.stop_reason in ("completed", "done"):
            self.record(ToldOfOpenItems())
            self.add_note(STILL_OPEN.format(todo.left))
            return None
        return answer


class TodoList(Fold):
    """The newest list in a log: `agent.fold(TodoList).left`.

    left: what is open on it, or in progress, a line each.
    steps: how many calls have ended since the model wrote it, or was told something.
    is_of_this_run: the list is no older than the newest run. After an older run, the user may have
        asked for something else.
    told: in the newest run, the model was told of open items as it wanted to end.
    """

    left = ""
    steps = 0
    is_of_this_run = False
    told = False

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, RunStart):
            self.is_of_this_run = self.told = False
        elif isinstance(record, ToldOfOpenItems):
            self.told = True
        elif isinstance(record, UserMessage) and record.hidden:
            self.steps = 0
        elif isinstance(record, ToolMessage) and record.tool_name == "todos":
            self.steps = 0
            if not record.is_error:
                self.left = "\n".join(OPEN_ITEM.findall(record.text))
                self.is_of_this_run = True
        elif isinstance(record, ToolMessage):
            self.steps += 1
