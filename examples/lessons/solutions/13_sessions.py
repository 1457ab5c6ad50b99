"""Task: fork a session into a second one, and ask a question there."""

import tempfile
from pathlib import Path

from agentloop import Agent, ScriptedModel, Session, UserMessage, call, load_record, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


class Cook(Session, Agent):
    tools = (stock,)
    session = "eggs"


SCRIPT = [
    call("stock", item="eggs"),
    "There are 12 eggs.",
    "They are enough for 24 pancakes.",
]


def show(folder):
    for file in sorted(Path(folder).glob("*.jsonl")):
        records = [load_record(line) for line in file.read_bytes().splitlines()]
        questions = [record.text for record in records if isinstance(record, UserMessage)]
        print(f"{file.name} contains: {' '.join(questions)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with Cook(llm=ScriptedModel(*SCRIPT), session_dir=folder) as agent:
            print(agent.run_sync("How many eggs are there?"))
            with agent.fork(session="pancakes") as other:
                print(other.run_sync("For how many pancakes?"))
        show(folder)
    print("Notice: the second file starts with a copy of the first and is independent of it.")
