"""A file watcher: the model is notified about files that change during its work.

Use the watcher where a user edits the same files. The notification is part of the next request,
regardless of the agent's current work. Writes of the agent are reported, too; exclude their paths
if necessary.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, MessageQueue, ScriptedModel, call, tool


class Steered(MessageQueue, Agent):
    """Accepts messages during a run."""


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


async def watch(agent: MessageQueue, folder: Path, seconds: float = 1.0) -> None:
    before = times(folder)
    while True:
        await asyncio.sleep(seconds)
        now = times(folder)
        if changed := sorted({path.name for path, _ in before.items() ^ now.items()}):
            agent.send(f"Files changed: {', '.join(changed)}. Read them again.", hidden=True)
        before = now


async def main(folder: Path) -> None:
    @tool("Look around for a while")
    async def look() -> str:
        (folder / "todo.txt").write_text("buy milk")  # simulates a user's edit
        await asyncio.sleep(0.2)
        return "nothing new"

    agent = Steered(llm=ScriptedModel(call("look"), "I see: milk."), tools=[look])
    watcher = asyncio.create_task(watch(agent, folder, 0.01))
    await agent.query("What is on the list?")
    watcher.cancel()
    print(*[message.text for message in agent.messages if message.text], sep="\n")


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
