"""Problem: a program ends in the middle of a conversation, and the conversation with it.

`Session` writes each record of the log to a file when it is made. An agent that is given the same
session begins with what is in the file, and `run()` without a prompt goes on where it was cut off:
a call that has its result is not run again, and one that never started runs now.

Try: give the second agent the prompt "Never mind. Are there eggs?". What becomes of the open call?
"""

import asyncio
import json
import tempfile
from contextlib import closing
from pathlib import Path

from agentloop import Agent, ScriptedModel, Session, ToolCallEvent, tool
from agentloop.models.scripted import call

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """How much of an item is in the pantry."""
    print("stock runs")
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """What a dish takes."""
    print("recipe runs")
    return {"pancakes": "8 pancakes take 400 flour and 4 eggs"}[dish]


class Cook(Session, Agent):
    tools = (stock, recipe)
    session = "pancakes"


async def cut_off(folder):
    """A run that ends when its second call is about to start."""
    script = ScriptedModel(call("stock", item="eggs"), call("recipe", dish="pancakes"))
    with closing(Cook(llm=script, session_dir=folder)) as agent:
        async with agent.query_stream("Are there enough eggs for 20 pancakes?") as events:
            async for event in events:
                if isinstance(event, ToolCallEvent) and event.tool == "recipe":
                    break


def go_on(folder):
    script = ScriptedModel("Yes: 20 pancakes take 10 eggs, and there are 12.")
    with closing(Cook(llm=script, session_dir=folder)) as agent:
        print(f"a new agent, with {len(agent.messages)} messages: {agent.messages[-1].text}")
        print(agent.run_sync())


def show(folder):
    lines = Path(folder, "pancakes.jsonl").read_text(encoding="utf-8").splitlines()
    print("the file:", ", ".join(json.loads(line)["type"] for line in lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(cut_off(folder))
        show(folder)
        go_on(folder)
        show(folder)
    print("Notice: each tool ran once. The second agent's script did not have to ask again.")
