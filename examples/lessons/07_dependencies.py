"""Problem: a tool needs objects that the model must not choose, for example the pantry.

A parameter marked with `Depends(function)` isn't in the schema. The function is called before the
tool, and the tool gets what it returns; a model that sends the parameter gets an error.
`dependency_overrides` replaces the function, in tests for example.

A `def` dependency runs in the thread of its tool. A `def` tool has a thread of its own for the
whole call: dependencies are opened, used and closed in one thread, as SQLite connections need it.
For an `async def` tool, that's the thread of the event loop, which must not be blocked. An
`async def` dependency always runs on the event loop.

Task: let `open_pantry` yield the pantry, and print when the pantry is opened and when it is closed.
The pantry closes after every call, even after a second one for milk that fails: print the result.
"""

import json
from typing import Annotated

from agentloop import Depends, Loop, ScriptedModel, ToolMessage, call, tool


def open_pantry() -> dict[str, int]:
    return {"flour": 900, "eggs": 12}


def empty_pantry() -> dict[str, int]:
    return {"flour": 0, "eggs": 0}


@tool
def stock(item: str, pantry: Annotated[dict[str, int], Depends(open_pantry)]) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return pantry[item]


def look(overrides):
    model = ScriptedModel(
        call("stock", item="eggs", pantry={"eggs": 1000}),
        call("stock", item="eggs"),
        lambda messages, tools: f"There are {messages[-1].text} eggs.",
    )
    agent = Loop(llm=model, tools=[stock], dependency_overrides=overrides)
    answer = agent.run_sync("How many eggs are there?")
    for message in agent.messages:
        if isinstance(message, ToolMessage):
            print("the model receives:", message.text)
    print(answer)


if __name__ == "__main__":
    print("the model may set:", json.dumps(stock.parameters["properties"]))
    look(overrides={})
    look(overrides={open_pantry: empty_pantry})
    print("Notice: the pantry is not in the schema, and a call that contains one is rejected.")
    print("Notice: the same tool used two different pantries.")
