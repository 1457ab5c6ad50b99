"""A to-do list for long tasks, with reminders if the model forgets open items.

Copy with: the core.

    class MyAgent(Todo, Agent): ...

The list is the newest result of the tool `todos` in the log, so it survives a restart, a summary
and a fork.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ToolError
from ..loop import Loop
from ..messages import (
    Message,
    Result,
    ToolMessage,
    UserMessage,
)
from ..tools import Tool, tool
from ..transcript import Fold, Mark, Record, RunStart

STILL_OPEN = "The list still has open items:\n{}\nComplete them, or drop them and explain why."
OPEN_ITEM = re.compile(r"(?m)^\[(?:open|in_progress)\].*")  # a line of a result of `todos`
REMINDER = "The list still has open items:\n{}\nContinue, and update the list when it changes."


class ToldOfOpenItems(Mark):
    """The model was reminded of open items when it tried to end the run."""


@dataclass
class Item:
    """A task and its state."""

    task: str
    state: Literal["open", "in_progress", "done", "dropped"]


@tool(ephemeral=1, parallel=False, read_only=True)
def todos(items: list[Item]) -> str:
    """Write the complete to-do list, including completed items. At most one item is in progress.

    Use the list for tasks of three steps or more. Start with the list, and update it after every
    step.
    """
    in_progress = [item for item in items if item.state == "in_progress"]
    if len(in_progress) > 1:
        raise ToolError("Only one item can be in progress: finish it first, or set it to open.")
    return "\n".join(f"[{item.state}] {item.task}" for item in items)


class Todo(Loop):
    """Offers the tool `todos`, and reminds the model once if it ends a run with open items.

    todo_reminder: after how many steps (tool calls) the model is reminded of the open items, if it
        hasn't updated its list.
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
        must_remind = todo.left and todo.is_of_this_run and not todo.reminded
        if answer and must_remind and answer.stop_reason in ("completed", "done"):
            self.record(ToldOfOpenItems())
            self.add_note(STILL_OPEN.format(todo.left))
            return None
        return answer


class TodoList(Fold):
    """The newest list in a log: `agent.fold(TodoList).left`.

    left: the items that are open or in progress, one per line.
    steps: how many calls have ended since the list was written, or since a hidden message.
    is_of_this_run: whether the list was written in the newest run. An earlier list may be about
        another task.
    reminded: whether the model was reminded of open items in the newest run.
    """

    left = ""
    steps = 0
    is_of_this_run = False
    reminded = False

    def take(self, at: int, record: Record | Message) -> None:
        match record:
            case RunStart():
                self.is_of_this_run = self.reminded = False
            case ToldOfOpenItems():
                self.reminded = True
            case UserMessage(hidden=True):
                self.steps = 0
            case ToolMessage(tool_name="todos"):
                self.steps = 0
                if not record.is_error:
                    self.left = "\n".join(OPEN_ITEM.findall(record.text))
                    self.is_of_this_run = True
            case ToolMessage():
                self.steps += 1
            case _:
                pass
