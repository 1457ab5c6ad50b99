"""Exercise: let one call ask for several items, and see what a model is told that sends only
one.
"""

import json
from typing import Literal

from agentloop import AssistantMessage, Loop, ScriptedModel, ToolMessage, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(items: list[str], unit: Literal["pieces", "grams"] = "pieces") -> str:
    """How much of some items is in the pantry.

    Args:
        items: Their names, in the plural.
    """
    print(f"stock runs with {items}")
    return ", ".join(f"{PANTRY[item]} {unit} of {item}" for item in items)


agent = Loop(
    llm=ScriptedModel(
        call("stock", items="eggs"),
        call("stock", items=["eggs", "flour"]),
        "There are 12 eggs, and flour.",
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
    print("Notice: a text is a sequence too, and is still not taken for a list.")
