"""What a model is told besides your prompts: open tasks, reminders, and files that have changed.

Use reminders in long runs, where a model loses sight of its instructions. Each one is a hidden
message at the end of the conversation, so the prefix in the provider's cache stays the same.

- `Todo` offers the tool `todos`, repeats the open tasks every few steps, and sends an answer back
  once if tasks are left. The list is in the log: it survives a restart, a summary and a fork.
- `every(4, ...)` repeats a text every four turns. It's a setting of `MessageQueue`.
- `LastTurns` depends on the log of its agent, so it's a mixin, which forks inherit.
- `watch` tells the model about files that somebody edits during the run. It reports the agent's own
  writes too.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    MessageQueue,
    ScriptedModel,
    UserMessage,
    call,
    every,
    tool,
)
from agentloop.toolkits.todo import Todo, TodoList

HURRY = "There are {} turns left in this run: finish your work."


class LastTurns(Loop):
    """last_turns: how many turns before the limit the model is told about it."""

    last_turns: int = 3

    async def context(self) -> list[Message]:
        text, run = HURRY.format(self.last_turns), self.conversation.run
        turns = sum(isinstance(record, AssistantMessage) for record in run)
        sent = any(isinstance(record, UserMessage) and record.text == text for record in run)
        if turns >= self.max_iterations - self.last_turns and not sent:
            self.add_note(text)
        return await super().context()


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


async def watch(agent: MessageQueue, folder: Path, seconds: float = 1.0) -> None:
    """Send a message about changed files, until the task is cancelled."""
    before = times(folder)
    while True:
        await asyncio.sleep(seconds)
        now = times(folder)
        if changed := sorted({path.name for path, _ in before.items() ^ now.items()}):
            agent.send(f"Files changed: {', '.join(changed)}. Read them again.", hidden=True)
        before = now


class Painter(LastTurns, Todo, MessageQueue, Agent):
    max_iterations = 10
    todo_reminder = 5
    reminders = (every(4, "The colour is green."),)


async def main(folder: Path) -> None:
    @tool("Paint a door")
    async def paint(door: int) -> str:
        (folder / "plan.txt").write_text(f"Leave door {door + 1} out.", "utf-8")  # somebody edits
        await asyncio.sleep(0.2)
        return f"Door {door} is green."

    items = [{"task": "paint the doors", "state": "open"}, {"task": "clean up", "state": "open"}]
    dropped = [
        {"task": "paint the doors", "state": "done"},
        {"task": "clean up", "state": "dropped"},
    ]
    doors = [call("paint", door=door) for door in range(1, 7)]
    llm = ScriptedModel(
        call("todos", items=items), *doors, "Painted.", call("todos", items=dropped), "No broom."
    )
    painter = Painter(llm=llm, tools=[paint])
    watcher = asyncio.create_task(watch(painter, folder, 0.02))
    print(await painter.query("Paint six doors and clean up."))
    watcher.cancel()
    print(*[message.text for message in painter.messages if message.text], sep="\n")
    print("Left:", painter.fold(TodoList).left or "nothing")


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
