"""Problem: a model has to be told which functions there are, and its arguments may be wrong.

`@tool` reads a function's signature and docstring. From them it makes the JSON schema that is
sent to the model, and the check of what the model sends. Arguments that fail the check never
reach the function: the result says what is wrong with them, and the loop goes round again.

Try: add "ounces" to the units. What changes in the schema, and in the answer to "pounds"?
"""

import json
from typing import Literal

from agentloop import AssistantMessage, Loop, ScriptedModel, ToolMessage, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str, unit: Literal["pieces", "grams"] = "pieces") -> str:
    """How much of an item is in the pantry.

    Args:
        item: Its name, in the plural.
    """
    print(f"stock runs with {item!r}")
    return f"{PANTRY[item]} {unit}"


agent = Loop(
    llm=ScriptedModel(
        call("stock", items="eggs"),
        call("stock", item="eggs", unit="pounds"),
        call("stock", item="eggs"),
        "There are 12 eggs.",
    ),
    tools=[stock],
)

if __name__ == "__main__":
    print(json.dumps(stock.parameters, indent=2))
    agent.run_sync("How many eggs are there?")
    for message in agent.messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            print("the model asks:   ", message.tool_calls[0].arguments)
        if isinstance(message, ToolMessage):
            print("the model is told:", message.text.replace("\n", "; "))
    print("Notice: three calls, and the function ran once.")
    print("Notice: this is the heart of nano.py: with its names imported, this lesson runs too.")
