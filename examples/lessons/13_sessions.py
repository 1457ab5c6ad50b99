"""Problem: a program ends in the middle of a conversation, and the conversation is lost.

`Session` writes each record of the log to a file at once. An agent with the same session starts
with the records in the file, and `run()` without a prompt continues the run that was interrupted.
Calls that already have a result don't run again.

watch_the_loop.html shows the placeholder result of an interrupted call from record 16 on.

Task: fork a session into a second one, and ask a question there. The first session never gets
the question. Name the sessions `eggs` and `pancakes`, and print a line per session, with the file
name and the questions.
"""

import json
import tempfile
from pathlib import Path

from agentloop import Agent, ConnectionFailed, ScriptedModel, Session, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    print("stock runs")
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    print("recipe runs")
    return {"pancakes": "8 pancakes take 400 flour and 4 eggs"}[dish]


class Cook(Session, Agent):
    tools = (stock, recipe)
    session = "pancakes"


INTERRUPTED = [call("stock", item="eggs"), ConnectionFailed("the network is gone")]
CONTINUED = [call("recipe", dish="pancakes"), "Yes: 20 pancakes take 10 eggs, and there are 12."]


def show(folder):
    lines = Path(folder, "pancakes.jsonl").read_text(encoding="utf-8").splitlines()
    print("the file:", ", ".join(json.loads(line)["type"] for line in lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with Cook(llm=ScriptedModel(*INTERRUPTED), session_dir=folder) as agent:
            try:
                agent.run_sync("Are there enough eggs for 20 pancakes?")
            except ConnectionFailed as error:
                print("the program ends:", error)
        show(folder)
        with Cook(llm=ScriptedModel(*CONTINUED), session_dir=folder) as agent:
            print(f"a new agent, with {len(agent.messages)} messages")
            print(agent.run_sync())
        show(folder)
    print("Notice: each tool ran once. The second agent did not repeat the call for the eggs.")
