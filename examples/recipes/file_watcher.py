"""A file watcher: the model is told which files somebody else changes while it works.

One wants it where a person edits along. The note stands before the next request, whatever the agent
is doing. Its own writes are told too; leave those out by their paths if that is too much.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, MessageQueue, ScriptedModel, tool
from agentloop.models.scripted import call


class Steered(MessageQueue, Agent):
    """Takes messages while it runs."""


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


async def watch(agent: MessageQueue, folder: Path, seconds: float = 1.0) -> None:
    before = times(folder)
    while True:
        await asyncio.sleep(seconds)
        now = times(folder)
        if changed := sorted({path.name for path, _ in before.items() ^ now.items()}):
            agent.send(f"Changed meanwhile: {', '.join(changed)}. Read them again.", hidden=True)
        before = now


async def main(folder: Path) -> None:
    @tool("Look around for a while")
    async def look() -> str:
        (folder / "todo.txt").write_text("buy milk")  # a person does this
        await asyncio.sleep(0.2)
        return "nothing new"

    agent = Steered(llm=ScriptedModel(call("look"), "I see: milk."), tools=[look])
    watcher = asyncio.create_task(watch(agent, folder, 0.01))
    await agent.query("What is to do?")
    watcher.cancel()
    print(*[message.text for message in agent.messages if message.text], sep="\n")


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
