"""Problem: the loop of lesson 4 would be written again in every program.

`Loop` is that loop. It takes the model, the tools and the limit; its log holds the conversation.
`@tool` makes a tool of a function, and `ScriptedModel` plays replies in order: texts and calls.

Below are the functions and the replies of lesson 4. What is printed is what a provider would get.

Try: write `max_iteration=3`. What does `Loop` say, and when does it say it?
"""

import json

from agentloop import Loop, ScriptedModel, call, tool
from agentloop.models.openai import write_openai_messages

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """How much of an item is in the pantry."""
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """What a dish takes."""
    return {"pancakes": "8 pancakes take 400 flour and 4 eggs"}[dish]


SCRIPT = [
    [call("recipe", dish="pancakes"), call("stock", item="egg")],
    call("stock", item="hen's egg"),
    call("stock", item="oeuf"),
    "20 pancakes take 10 eggs; how many there are I do not know.",
]
agent = Loop(llm=ScriptedModel(*SCRIPT), tools=[stock, recipe], max_iterations=3)

if __name__ == "__main__":
    result = agent.run_sync("Are there enough eggs for 20 pancakes?")
    for message in write_openai_messages(agent.messages, "system"):
        print(json.dumps(message))
    print(f"Notice: {len(agent.messages)} messages, those of lesson 4; the calls' ids are others.")
    print(f"Notice: the result says why the run ended: {result.stop_reason}.")
